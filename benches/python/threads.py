"""Calls of the package per second, by one thread and by two.

`cargo xtask bench python threads` runs this, with the built modules on PYTHONPATH and any Python:
`--python PATH`. Each printed line is a tab-separated record: threads, call, calls per second of all
threads together.
"""

import threading
import time
from collections.abc import Callable
from itertools import product, repeat

import numpy as np

import dlbridge

THREADS = [1, 2]
# The best round counts.
ROUNDS = 11
ROUND_S = 0.1
BATCH = 500

# Makes a call of one thread, over memory of its own.
CALLS: dict[str, Callable[[], Callable[[], object]]] = {
    "from_dlpack": lambda: with_array(lambda x: lambda: dlbridge.from_dlpack(x)),
    "np.from_dlpack": lambda: with_array(lambda x: of_tensor(x, np.from_dlpack)),
    "numpy": lambda: with_array(lambda x: dlbridge.from_dlpack(x).numpy),
    "zeros of 64 KiB": lambda: lambda: dlbridge.zeros(1 << 13),
    # How well this machine and this Python run threads in parallel.
    "Python alone": lambda: lambda: 3,
}


def with_array(call: Callable[[np.ndarray], Callable[[], object]]) -> Callable[[], object]:
    return call(np.arange(6, dtype=np.float32).reshape(2, 3))


def of_tensor(x: np.ndarray, take: Callable[[object], object]) -> Callable[[], object]:
    tensor = dlbridge.from_dlpack(x)
    return lambda: take(tensor)


def rate(make: Callable[[], Callable[[], object]], threads: int) -> float:
    """Calls per second of all threads together.

    Timed from the barrier to the end of the last thread, so time spent waiting for the GIL counts.
    """
    starts: list[float] = []
    counts: list[int] = []
    # The last thread to arrive records the time before the barrier opens.
    barrier = threading.Barrier(threads, lambda: starts.append(time.perf_counter()))

    def work() -> None:
        call, done = make(), 0
        barrier.wait()
        while time.perf_counter() < starts[0] + ROUND_S:
            for _ in repeat(None, BATCH):
                call()
            done += BATCH
        counts.append(done)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - starts[0])


def main() -> None:
    for name, make in CALLS.items():
        best = dict.fromkeys(THREADS, 0.0)
        # In turns, so that other load on the machine affects all equally.
        for _, threads in product(range(ROUNDS), THREADS):
            best[threads] = max(best[threads], rate(make, threads))
        for threads, most in best.items():
            print(threads, name, f"{most:.0f}", sep="\t", flush=True)


if __name__ == "__main__":
    main()
