"""How long something takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

BUDGET = 0.05
"""Seconds for one measurement."""


def nanoseconds(action: Callable[[], object], budget: float = BUDGET) -> float:
    """The median time of an action, of batches of about half a millisecond."""
    action()
    start = time.perf_counter_ns()
    action()
    once = max(time.perf_counter_ns() - start, 1)
    batch = max(1, 500_000 // once)
    times: list[float] = []
    end = time.perf_counter() + budget
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter_ns()
        for _ in range(batch):
            action()
        times.append((time.perf_counter_ns() - start) / batch)
    return statistics.median(times)


def show(time_in_ns: float) -> str:
    """A time in words."""
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if time_in_ns >= unit:
            return f"{time_in_ns / unit:.3g} {name}"
    return f"{time_in_ns:.0f} ns"
