"""Formats the results of `check` as lines of text."""

from __future__ import annotations

from dlbridge.demo.check import Row

HEADINGS = ["array", "protocol", "imported", "exported", "write visible", "read-only kept"]


def facts(rows: list[Row]) -> list[str]:
    """Whether the memory is shared, writes are visible and read-only memory stays unchanged."""
    cells = [HEADINGS]
    for row in rows:
        same = ["same pointer" if same else "COPY" for same in (row.same_in_rust, row.same_back)]
        cells.append([row.framework, row.protocol, *same, row.change_seen, row.read_only])
    return align(cells)


def times(rows: list[Row]) -> list[str]:
    """The time of an import and an export, compared with the framework's own copy."""
    sizes = [size for size, _, _ in rows[0].nanoseconds]
    headings = [f"{size_name(size)}: exchange / copy" for size in sizes]
    cells = [["array", *headings]]
    for row in rows:
        pairs = [f"{duration(one)} / {duration(copy)}" for _, one, copy in row.nanoseconds]
        cells.append([row.framework, *pairs])
    return align(cells)


def align(cells: list[list[str]]) -> list[str]:
    """Pads the columns to equal width and underlines the headings."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def size_name(elements: int) -> str:
    """A number of elements in binary multiples."""
    for unit, name in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if elements >= unit and elements % unit == 0:
            return f"{elements // unit} {name}"
    return str(elements)


def duration(nanoseconds: float) -> str:
    """A time in the largest unit that keeps the number at 1 or above."""
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if nanoseconds >= unit:
            return f"{nanoseconds / unit:.3g} {name}"
    return f"{nanoseconds:.0f} ns"
