"""Measures the time of a function call."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable


def nanoseconds(
    action: Callable[[], object],
    budget: float = 0.05,
    *,
    batch: int = 500_000,
    most: int = sys.maxsize,
) -> float:
    """The median time of one call of `action`, measured in batches of about `batch` nanoseconds.

    Runs batches for `budget` seconds: at least three, and at most `most`.
    """
    action()
    start = time.perf_counter_ns()
    action()
    once = max(time.perf_counter_ns() - start, 1)
    times = max(1, batch // once)
    found: list[float] = []
    end = time.perf_counter() + budget
    while len(found) < 3 or (len(found) < most and time.perf_counter() < end):
        start = time.perf_counter_ns()
        for _ in range(times):
            action()
        found.append((time.perf_counter_ns() - start) / times)
    return statistics.median(found)
