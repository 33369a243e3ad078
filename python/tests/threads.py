"""Work that several threads do at the same time. Tests import this; it holds none."""

from __future__ import annotations

import threading
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
