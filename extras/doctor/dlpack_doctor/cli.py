"""The command line: `dlpack-doctor`, or `python -m dlpack_doctor`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from dlpack_doctor import __version__, names, registry
from dlpack_doctor.examine import examine
from dlpack_doctor.findings import Findings, from_json
from dlpack_doctor.report import grid, render, terminal

HELP = """Check that array types conform to DLPack, as producers, as consumers, and in pairs.

NAME is one of

\b
  numpy, torch, jax, ...   a framework that the doctor knows (default: all that are installed)
  mylib:make               a factory: make(), make(shape) or make(shape, dtype); shape is a
                           tuple, dtype a name such as "float32". It returns any object with
                           __dlpack__ and __dlpack_device__. Its numbers are compared with
                           its tolist(). mylib.from_dlpack, if there, is checked as consumer.
  mylib:from_dlpack        a consumer alone
  mylib                    an array API namespace (arange, reshape, astype, from_dlpack)
  label=mylib:make         the same under another name

Every check runs in a child process, so a crash is one failure.

The exit status is 0 if nothing failed, 1 if a check failed, 2 for a wrong command line or a
subject that could not be examined.
"""


def _explain(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        for check in registry.all_checks():
            click.echo(f"{check.id}\n  {check.summary}\n  {check.clause}\n  {check.means}")
        context.exit()


def _checks(
    _context: click.Context, _parameter: click.Parameter, ids: tuple[str, ...]
) -> list[str]:
    unknown = set(ids) - {check.id for check in registry.all_checks()}
    if unknown:
        raise click.BadParameter(f"no such check: {', '.join(sorted(unknown))}; --list has all")
    return list(ids)


def _file(help: str) -> dict[str, Any]:
    return {"type": click.Path(path_type=Path, dir_okay=False), "metavar": "FILE", "help": help}


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, help=HELP)
@click.argument("subjects", nargs=-1, metavar="[NAME]...")
@click.option("-v", "--verbose", is_flag=True, help="Show every finding with its reproducer.")
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Explain every check, and run none.",
)
@click.option(
    "--check",
    "checks",
    multiple=True,
    metavar="ID",
    callback=_checks,
    help="Run only this check; may be repeated.",
)
@click.option("--no-pairs", is_flag=True, help="Do not exchange arrays between the subjects.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 if checks fail.")
@click.option("--json", "json_file", **_file("Write the findings as JSON."))
@click.option("--html", **_file("Write one HTML page."))
@click.option("--markdown", **_file("Write a page of Markdown."))
@click.option("--badge", **_file("Write a badge as SVG."))
@click.option("--since", **_file("Show what changed since these findings (JSON)."))
@click.option("--note", "notes", multiple=True, metavar="TEXT", help="Say more on the pages.")
@click.version_option(__version__, message="%(version)s")
def main(
    subjects: tuple[str, ...],
    verbose: bool,
    checks: list[str],
    no_pairs: bool,
    exit_zero: bool,
    json_file: Path | None,
    html: Path | None,
    markdown: Path | None,
    badge: Path | None,
    since: Path | None,
    notes: tuple[str, ...],
) -> None:
    """Run the doctor."""
    try:
        asked = [found for name in subjects or ["installed"] for found in names.expand(name)]
    except names.Unknown as error:
        raise click.UsageError(str(error)) from None
    # A file or a pipe has no width that lines and tables would have to fit.
    wide = {} if sys.stdout.isatty() else {"width": 250, "soft_wrap": True}
    console = Console(highlight=False, emoji=False, **wide)  # type: ignore[arg-type]
    if not asked:
        raise click.UsageError("no framework that the doctor knows is installed; name one")
    findings = _examine(asked, checks, not no_pairs)
    findings.environments += notes
    before = from_json(since.read_text(encoding="utf-8")) if since else None
    command = os.environ.get("DLPACK_DOCTOR_COMMAND", f"dlpack-doctor {shlex.join(sys.argv[1:])}")
    if json_file:
        json_file.write_text(findings.to_json(), encoding="utf-8")
    for path, template in ((html, "page.html"), (markdown, "page.md"), (badge, "badge.svg")):
        if path:
            path.write_text(render.page(template, findings, command, before), encoding="utf-8")
    terminal.show(console, findings, verbose)
    problems = [s for s in findings.subjects if s.problem]
    sys.exit(2 if problems or not findings.subjects else 0 if exit_zero or findings.ok else 1)


def run() -> None:
    """The console script."""
    main(prog_name="dlpack-doctor")


def _examine(asked: list[str], checks: list[str], pairs: bool) -> Findings:
    """Examine in child processes, with the progress on stderr."""
    console = Console(stderr=True, highlight=False, emoji=False)
    with console.status("starting") as status:
        notice: Callable[[str], None] = status.update

        def finished(findings: Findings, name: str) -> None:
            console.print(grid.summary(findings, name), markup=False)

        return examine(asked, pairs=pairs, checks=checks or None, notice=notice, finished=finished)
