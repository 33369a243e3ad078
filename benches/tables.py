"""Sections of docs/benchmarks.md, and the tables in them."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/benchmarks.md"

Rows = list[list[str]]


class Unmeasured(Exception):
    """Raised with the reason why a section cannot be measured on this machine."""


@dataclass
class Section:
    """A section of the page; `draw` makes its chart."""

    title: str
    body: str
    command: str
    chart: str = ""
    draw: Callable[[], Any] | None = None
    # Counts of other libraries, for `counts.write_peers`.
    peers: Any = None


def target() -> Path:
    """Cargo's folder for build results."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def size(count: float) -> str:
    """A number of bytes with its unit."""
    units = ["B", "KiB", "MiB", "GiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    digits = 1 if units[0] != "B" and count % 1 > 0.05 and count < 10 else 0
    return f"{count:.{digits}f} {units[0]}"


def table(heads: str, align: str, rows: Rows) -> str:
    """A Markdown table without its empty columns; `align` has l or r for each column."""
    names = [head.strip() for head in heads.split("|")]
    used = [i for i in range(len(names)) if any(row[i] not in ("", "-") for row in rows)]
    rule = ["---:" if side == "r" else "---" for side in align]
    lines = [[row[i] for i in used] for row in [names, rule, *rows]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def aligned(text: str) -> str:
    """The same text with its tables aligned for a terminal."""

    def align(match: re.Match[str]) -> str:
        rows = [line[2:-2].split(" | ") for line in match[0].splitlines()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        right = [cell == "---:" for cell in rows.pop(1)]
        lines = ""
        for row in rows:
            cells = zip(row, widths, right, strict=True)
            padded = [cell.rjust(width) if r else cell.ljust(width) for cell, width, r in cells]
            lines += "  ".join(padded).rstrip() + "\n"
        return lines

    return re.sub(r"(?:^\|.*\|\n)+", align, text, flags=re.MULTILINE)


def with_section(page: str, title: str, body: str) -> str:
    """The page with the section of that title replaced, or appended."""
    section = f"## {title}\n\n{body.rstrip()}\n"
    pattern = rf"^## {re.escape(title)}\n.*?(?=^## |\Z)"
    found = re.search(pattern, page, re.MULTILINE | re.DOTALL)
    if not found:
        return f"{page.rstrip()}\n\n{section}"
    rest = page[found.end() :]
    return page[: found.start()] + section + ("\n" + rest if rest else "")


def keep(section: Section, machine: str, save: Callable[[Any, Path], None]) -> None:
    """Writes a section and its chart, unless the head of the page already shows the chart."""
    page, image = PAGE.read_text(), ""
    if section.draw:
        save(section.draw(), PAGE.parent / f"benchmarks/{section.chart}.svg")
        if f"/{section.chart}.svg" not in page.split("\n## ")[0]:
            image = f"![{section.title}](benchmarks/{section.chart}.svg)\n\n"
    intro = f"`cargo xtask bench {section.command} --write` wrote this section. {machine}."
    PAGE.write_text(with_section(page, section.title, f"{intro}\n\n{image}{section.body}"))
    print(f"wrote the section {section.title} of {PAGE.relative_to(ROOT)}")
