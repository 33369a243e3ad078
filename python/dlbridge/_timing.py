"""How long something takes."""

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
    """The median time of an action, of batches of about so many nanoseconds.

    Batches are made for `budget` seconds, three at the least and `most` at the most.
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
