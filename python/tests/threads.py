"""Work that several threads do at the same time. Tests import this; it holds none."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable


def failures_in_threads(count: int, work: Callable[[], object]) -> list[BaseException]:
    """Let so many threads do the same, all started at once; what went wrong in them."""
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run() -> None:
        try:
            start.wait()
            work()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def failures_in_step(count: int, rounds: int, work: Callable[[int], object]) -> list[BaseException]:
    """Let so many threads do a work of many rounds, each of which they begin at the same time."""
    arrived = [-1] * count
    numbers = itertools.count()

    def step_by_step() -> None:
        me = next(numbers)
        try:
            for current in range(rounds):
                arrived[me] = current
                # A thread that sleeps comes too late to meet the others, so that it is done rarely.
                for turns in itertools.count(1):
                    if min(arrived) >= current:
                        break
                    if turns % 5000 == 0:
                        time.sleep(0)
                work(current)
        finally:
            arrived[me] = rounds

    return failures_in_threads(count, step_by_step)
