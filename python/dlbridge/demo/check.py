"""What the demo shows of one kind of arrays, found out by doing it.

Printing does not belong here (see `table`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import dlbridge
from dlbridge._timing import nanoseconds
from dlbridge.demo.kinds import Array, Kind

NEW_VALUE = 7.0
"""What Rust writes into an array of ones."""


@dataclass
class Row:
    """What was seen of one kind of arrays."""

    kind: str
    protocol: str = ""
    same_in_rust: bool = False
    same_back: bool = False
    change_seen: str = ""
    read_only: str = ""
    nanoseconds: list[tuple[int, float, float]] = field(default_factory=list)
    """Elements, time of an exchange, time of a copy."""
    wrong: list[str] = field(default_factory=list)
    """What should have been otherwise."""


def check(kind: Kind, sizes: Iterable[int], budget: float) -> Row:
    """Exchange arrays of one kind, and time it for some numbers of elements.

    `budget` is how many seconds one timing may take.
    """
    row = Row(kind.name)
    array = kind.make(1024)
    _share(kind, array, row)
    _change(kind, array, row)
    _freeze(kind, row)
    for size in sizes:
        row.nanoseconds.append((size, *_times(kind, kind.make(size), budget)))
    return row


def _times(kind: Kind, array: Array, budget: float) -> tuple[float, float]:
    def median(action: Callable[[], object]) -> float:
        return nanoseconds(action, budget, batch=1_000_000, most=200)

    exchange = median(lambda: kind.back(dlbridge.from_dlpack(array)))
    return exchange, median(lambda: kind.copy(array))


def _share(kind: Kind, array: Array, row: Row) -> None:
    description = dlbridge.inspect(array)
    version = "" if description.version is None else " {}.{}".format(*description.version)
    row.protocol = description.protocol + version
    tensor = dlbridge.from_dlpack(array)
    row.same_in_rust = tensor.data_ptr == kind.pointer(array)
    row.same_back = kind.pointer(kind.back(tensor)) == kind.pointer(array)
    if not row.same_in_rust:
        row.wrong.append("Rust has another memory than the array")
    if not row.same_back:
        row.wrong.append("the array that came back has another memory")


def _change(kind: Kind, array: Array, row: Row) -> None:
    """Write to the array's memory in Rust; the array must show it."""
    if kind.immutable:
        row.change_seen = "immutable"
        return
    dlbridge.fill(dlbridge.from_dlpack(array), NEW_VALUE)
    seen = kind.first(array) == NEW_VALUE
    row.change_seen = _yes(seen)
    if not seen:
        row.wrong.append("a change made in Rust does not show in the array")


def _freeze(kind: Kind, row: Row) -> None:
    """Memory that must not be written is known as such in Rust, which refuses to write it."""
    if kind.freeze is None and not kind.immutable:
        row.read_only = "has none"
        return
    array = kind.make(4)
    tensor = dlbridge.from_dlpack(kind.freeze(array) if kind.freeze else array)
    if not tensor.readonly and kind.immutable:
        # A producer of the old protocol has no way to say it.
        row.read_only = "not said"
        return
    try:
        dlbridge.fill(tensor, NEW_VALUE)
        refused = False
    except BufferError:
        refused = True
    respected = refused and kind.first(array) == 1.0
    row.read_only = _yes(respected)
    if not respected:
        row.wrong.append("Rust wrote to read-only memory")


def _yes(fact: bool) -> str:
    return "yes" if fact else "NO"
