"""Runs the demo's checks and timings with arrays of one framework; `table` prints the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import dlbridge
from dlbridge._timing import nanoseconds
from dlbridge.demo.frameworks import Array, Framework

NEW_VALUE = 7.0
"""The value that Rust writes into an array of ones."""


@dataclass
class Row:
    """The results of one framework."""

    framework: str
    protocol: str = ""
    same_in_rust: bool = False
    same_back: bool = False
    change_seen: str = ""
    read_only: str = ""
    nanoseconds: list[tuple[int, float, float]] = field(default_factory=list)
    """Elements, time of an exchange, time of a copy."""
    wrong: list[str] = field(default_factory=list)
    """The checks that failed."""


def check(framework: Framework, sizes: Iterable[int], budget: float) -> Row:
    """Exchange arrays of one framework, and time exchanges of arrays of several sizes.

    `budget` is the time limit of one timing, in seconds.
    """
    row = Row(framework.name)
    array = framework.make(1024)
    _share(framework, array, row)
    _change(framework, array, row)
    _freeze(framework, row)
    for size in sizes:
        row.nanoseconds.append((size, *_times(framework, framework.make(size), budget)))
    return row


def _times(framework: Framework, array: Array, budget: float) -> tuple[float, float]:
    def median(action: Callable[[], object]) -> float:
        return nanoseconds(action, budget, batch=1_000_000, most=200)

    exchange = median(lambda: framework.back(dlbridge.from_dlpack(array)))
    return exchange, median(lambda: framework.copy(array))


def _share(framework: Framework, array: Array, row: Row) -> None:
    description = dlbridge.inspect(array)
    version = "" if description.version is None else " {}.{}".format(*description.version)
    row.protocol = description.protocol + version
    tensor = dlbridge.from_dlpack(array)
    row.same_in_rust = tensor.data_ptr == framework.pointer(array)
    row.same_back = framework.pointer(framework.back(tensor)) == framework.pointer(array)
    if not row.same_in_rust:
        row.wrong.append("expected Rust to have the array's memory, found other memory")
    if not row.same_back:
        row.wrong.append("expected the exported array to have the same memory, found other memory")


def _change(framework: Framework, array: Array, row: Row) -> None:
    """Write to the array's memory in Rust, and check that the array has the new value."""
    if framework.immutable:
        row.change_seen = "immutable"
        return
    dlbridge.fill(dlbridge.from_dlpack(array), NEW_VALUE)
    seen = framework.first(array) == NEW_VALUE
    row.change_seen = _yes(seen)
    if not seen:
        row.wrong.append("expected a write in Rust to show in the array, found the old value")


def _freeze(framework: Framework, row: Row) -> None:
    """Check that Rust refuses to write to read-only memory."""
    if framework.freeze is None and not framework.immutable:
        row.read_only = "has none"
        return
    array = framework.make(4)
    tensor = dlbridge.from_dlpack(framework.freeze(array) if framework.freeze else array)
    if not tensor.readonly and framework.immutable:
        # The legacy ABI has no read-only flag.
        row.read_only = "not said"
        return
    try:
        dlbridge.fill(tensor, NEW_VALUE)
        refused = False
    except BufferError:
        refused = True
    respected = refused and framework.first(array) == 1.0
    row.read_only = _yes(respected)
    if not respected:
        row.wrong.append("expected read-only memory to be unchanged, found a write by Rust")


def _yes(fact: bool) -> str:
    return "yes" if fact else "NO"
