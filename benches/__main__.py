"""Measures, prints tables, and updates sections of docs/benchmarks.md: see `cargo xtask bench`.

`python benches rust PROGRAM [PART...]`, `python benches python [PART...]`,
`python benches calls`, `python benches operators`, `python benches processes PROGRAM`, `python benches julia FILE`, `python benches check PYTHON`.
`python benches modules NAME...` only builds the modules of other libraries, and prints their folder and versions.
"""

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import counts
import operators
import paths
import processes
import sections
from build import SOURCES, build, build_all, modules, version
from tables import Section, Unmeasured, aligned, keep

RUST_PARTS = ["shares", "views", "reads"]
PYTHON_PARTS = ["paths", "copies"]


def machine(*, python: bool) -> str:
    """The date, the machine, and the versions of the tools."""

    def first_line(*command: str) -> str:
        try:
            return sections.output(*command).split("\n")[0]
        except OSError:
            return ""

    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
    processor = names[0].split(": ")[1] if names else platform.machine()
    tools = [first_line("rustc", "--version"), first_line("valgrind", "--version")]
    if python:
        tools.insert(1, first_line("cc", "--version"))
        tools.append(f"Python {platform.python_version()}")
    day = datetime.date.today().isoformat()
    return f"{day}. {processor}, {sections.cores()}. {'; '.join(filter(None, tools))}"


def write(section: Section, *, python: bool) -> None:
    from charts import save

    keep(section, machine(python=python), save)
    if section.peers:
        counts.write_peers(section.peers)


def rust(given: argparse.Namespace) -> Iterator[Callable[[], Section]]:
    program = Path(given.program)
    for part in given.parts or RUST_PARTS:
        if part in ("shares", "views"):
            yield lambda part=part: getattr(sections, part)(program)
        else:
            yield lambda part=part: getattr(sections, part)("Rust", sections.output(program, part))


def python(given: argparse.Namespace) -> Iterator[Callable[[], Section]]:
    parts = given.parts or PYTHON_PARTS
    if "paths" in parts:
        yield lambda: paths.paths(given)
    if "copies" in parts:
        build_all(quick=True)
    os.environ |= {"PYTHONPATH": str(modules()), "PYTHONDONTWRITEBYTECODE": "1"}
    if "copies" in parts:
        script = SOURCES / "copies.py"
        yield lambda script=script: sections.copies(sections.output(sys.executable, script))


def in_threads() -> Section:
    is_free = not getattr(sys, "_is_gil_enabled", lambda: True)()
    language = "Free-threaded Python" if is_free else "Python"
    return sections.threads(language, sections.output(sys.executable, SOURCES / "threads.py"))


def in_processes(program: Path) -> Section:
    before = processes.state()
    lines = sections.output(program, "processes")
    lines += sections.output(sys.executable, SOURCES / "processes.py")
    return processes.section(lines, before)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benches", description=__doc__)
    parser.add_argument("--write", action="store_true")
    commands = parser.add_subparsers(dest="command", required=True)
    of_rust = commands.add_parser("rust")
    of_rust.add_argument("program")
    of_rust.add_argument("parts", nargs="*", choices=[*RUST_PARTS, []])
    of_python = commands.add_parser("python")
    of_python.add_argument("parts", nargs="*", choices=[*PYTHON_PARTS, []])
    of_python.add_argument("--quick", action="store_true")
    commands.add_parser("calls")
    commands.add_parser("operators").add_argument("--gpu", action="store_true")
    commands.add_parser("threads")
    commands.add_parser("processes").add_argument("program")
    commands.add_parser("julia").add_argument("file")
    commands.add_parser("check").add_argument("bare")
    commands.add_parser("modules").add_argument("names", nargs="+")
    given = parser.parse_args()
    if given.command == "check":
        found = paths.counted(given.bare)
        (counts.write if given.write else counts.compare)(found)
        return
    if given.command == "operators" and given.gpu:
        print(aligned(operators.on_gpu()))
        return
    if given.command == "modules":
        for name in given.names:
            build(name)
        print(modules(), *map(version, given.names), sep="\n")
        return
    if given.command == "julia":
        todo = iter([lambda: sections.julia(Path(given.file).read_text())])
    elif given.command == "calls":
        todo = iter([paths.calls])
    elif given.command == "operators":
        todo = iter([operators.section])
    elif given.command == "threads":
        todo = iter([in_threads])
    elif given.command == "processes":
        todo = iter([lambda: in_processes(Path(given.program))])
    else:
        todo = {"rust": rust, "python": python}[given.command](given)
    for measure in todo:
        section = measure()
        print(f"\n{section.title}\n\n{aligned(section.body)}", flush=True)
        if given.write:
            write(section, python=given.command != "rust")


if __name__ == "__main__":
    try:
        main()
    except Unmeasured as problem:
        sys.exit(f"error: {problem}")
