"""The command line: `python -m dlbridge doctor`.

Examining belongs to `examine`, what it looks like to `report`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dlbridge.doctor import names, registry
from dlbridge.doctor.examine import examine
from dlbridge.doctor.findings import Examined, Findings, from_json, join
from dlbridge.doctor.report import grid, markdown, page, terminal
from dlbridge.doctor.verdict import Verdict

DESCRIPTION = """Does an array type really speak DLPack? Checks producers, consumers and every
pair of them, each check in a process of its own kind, so that a crash is one red cell."""
NAMES = """a known framework (default: all that are installed), module:factory or module:Class
whose calls make arrays, module:from_dlpack for a consumer alone, or an array API namespace"""


def parser() -> argparse.ArgumentParser:
    """All options."""
    made = argparse.ArgumentParser(prog="python -m dlbridge doctor", description=DESCRIPTION)
    made.add_argument("names", nargs="*", metavar="NAME", help=NAMES)
    made.add_argument("--list", action="store_true", help="explain every check, and run none")
    made.add_argument("--check", action="append", metavar="ID", help="run this check only")
    made.add_argument("--no-pairs", action="store_true", help="leave the pairs out")
    made.add_argument("--strict", action="store_true", help="exit with 1 if anything fails")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the findings as JSON")
    made.add_argument("--html", type=Path, metavar="FILE", help="write one HTML page")
    made.add_argument("--markdown", type=Path, metavar="FILE", help="write a page of Markdown")
    made.add_argument(
        "--python",
        action="append",
        metavar="PATH",
        default=[],
        help="also examine what another Python has, which must have dlbridge, too",
    )
    made.add_argument(
        "--join", action="append", metavar="FILE", type=Path, default=[], help="add saved findings"
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the doctor; the result is the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(words)
    if options.list:
        print(*explain(), sep="\n")
        return 0
    unknown = set(options.check or ()) - {check.id for check in registry.all_checks()}
    if unknown:
        print(f"no such check: {', '.join(sorted(unknown))}; --list has all", file=sys.stderr)
        return 2
    parts = [_examine(options)]
    parts += [_elsewhere(python, options) for python in options.python]
    parts += [from_json(path.read_text(encoding="utf-8")) for path in options.join]
    findings = join(parts)
    command = "python -m dlbridge doctor " + shlex.join(words)
    _write(options, findings, os.environ.get("DLBRIDGE_DOCTOR_COMMAND", command.strip()))
    _print(findings)
    return _code(findings, options.strict)


def explain() -> list[str]:
    """Every check in three lines."""
    lines = []
    for check in registry.all_checks():
        lines += [check.id, f"  {check.summary}", f"  {check.clause}"]
    return lines


def _examine(options: argparse.Namespace) -> Findings:
    asked = [found for name in options.names for found in names.expand(name)]
    notice, finished = _progress()
    return examine(
        asked or names.installed(),
        pairs=not options.no_pairs,
        checks=options.check,
        notice=notice,
        finished=finished,
    )


def _elsewhere(python: str, options: argparse.Namespace) -> Findings:
    """The same in another Python, of which only the findings are wanted."""
    words = list(options.names)
    words += [word for check in options.check or () for word in ("--check", check)]
    words += ["--no-pairs"] if options.no_pairs else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "findings.json"
        command = [python, "-m", "dlbridge", "doctor", *words, "--json", str(path)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return from_json(path.read_text(encoding="utf-8"))


def _progress() -> tuple[Callable[[str], None], Callable[[Findings, Examined], None]]:
    """What is being done, on a line that the next one overwrites; and what is done."""
    live = sys.stderr.isatty()

    def notice(text: str) -> None:
        if live:
            print(f"... {text}"[:78].ljust(78), end="\r", file=sys.stderr, flush=True)

    def finished(findings: Findings, subject: Examined) -> None:
        count = grid.counts(findings, subject.name)
        text = ", ".join(f"{count[verdict]} {verdict.value}" for verdict in Verdict)
        line = f"{subject.name} {subject.version}: {subject.problem or text}"
        print(line.ljust(78) if live else line, file=sys.stderr, flush=True)

    return notice, finished


def _write(options: argparse.Namespace, findings: Findings, command: str) -> None:
    if options.json is not None:
        options.json.write_text(findings.to_json(), encoding="utf-8")
    if options.html is not None:
        options.html.write_text(page.html(findings, command), encoding="utf-8")
    if options.markdown is not None:
        options.markdown.write_text(markdown.text(findings, command), encoding="utf-8")


def _print(findings: Findings) -> None:
    live = sys.stdout.isatty()
    colour = live and not os.environ.get("NO_COLOR")
    width = shutil.get_terminal_size().columns if live else 200
    print(*terminal.lines(findings, width=width, colour=colour), sep="\n")


def _code(findings: Findings, strict: bool) -> int:
    if not grid.subjects(findings):
        return 2
    return 1 if strict and not findings.ok else 0
