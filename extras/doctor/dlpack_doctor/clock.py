"""The time of an action, measured and in words."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable

MIB = 1 << 20
COPY = "copy of 1 MiB"
"""The row that times are compared with."""


def nanoseconds(action: Callable[[], object], budget: float = 0.05) -> float:
    """The median over batches of about half a millisecond, made for `budget` seconds."""
    action()
    start = time.perf_counter_ns()
    action()
    once = max(time.perf_counter_ns() - start, 1)
    times = max(1, 500_000 // once)
    found: list[float] = []
    end = time.perf_counter() + budget
    while len(found) < 3 or time.perf_counter() < end:
        start = time.perf_counter_ns()
        for _ in range(times):
            action()
        found.append((time.perf_counter_ns() - start) / times)
    return statistics.median(found)


def copy_of_a_mebibyte() -> float:
    """Nanoseconds that a copy of 1 MiB takes here, for comparison with an exchange."""
    source, target = ctypes.create_string_buffer(MIB), ctypes.create_string_buffer(MIB)
    return nanoseconds(lambda: ctypes.memmove(target, source, MIB))


def show(time_in_ns: float) -> str:
    """A time in words."""
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if time_in_ns >= unit:
            return f"{time_in_ns / unit:.3g} {name}"
    return f"{time_in_ns:.0f} ns"
