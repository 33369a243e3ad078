"""Calls of the package, and of functions of an extension, per second, by one thread and by more.

`cargo xtask bench threads` runs this with any Python: `--python PATH`. It needs the package, the example extension and
NumPy alone, and runs where `scripts/gpu-tests.sh pack` has put them. Each printed line is a tab-separated record: threads,
call, calls per second of all threads together.
"""

import os
import threading
import time
from collections.abc import Callable
from itertools import product, repeat

import dlbridge_example as example
import numpy as np

import dlbridge

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
THREADS = [1, 2, *(count for count in (4, 8, 16, 32) if count <= CORES)]
# The best round counts.
ROUNDS = 11
ROUND_S = 0.1
BATCH = 500

# Makes a call of one thread, by its number, over memory of its own.
CALLS: dict[str, Callable[[int], Callable[[], object]]] = {
    "a function that reads one": lambda _: with_array(lambda x: lambda: example.norm(x)),
    "... that writes one": lambda _: with_array(lambda x: lambda: example.normalise(x)),
    "... that reads one, beside a thread that writes": lambda number: with_array(
        lambda x: (lambda: example.norm(x)) if number else (lambda: example.normalise(x))
    ),
    "... that makes a result": lambda _: with_array(lambda x: lambda: example.scale(x, 1.0)),
    "from_dlpack": lambda _: with_array(lambda x: lambda: dlbridge.from_dlpack(x)),
    "np.from_dlpack": lambda _: with_array(lambda x: of_tensor(x, np.from_dlpack)),
    "numpy": lambda _: with_array(lambda x: dlbridge.from_dlpack(x).numpy),
    "tolist": lambda _: with_array(lambda x: dlbridge.from_dlpack(x).tolist),
    "float(t[0])": lambda _: with_array(lambda x: of_tensor(x, lambda t: float(t[0]))),
    "zeros of 64 KiB": lambda _: lambda: dlbridge.zeros(1 << 13),
    # How well this machine and this Python run threads in parallel.
    "Python alone": lambda _: lambda: 3,
}


def with_array(call: Callable[[np.ndarray], Callable[[], object]]) -> Callable[[], object]:
    return call(np.ones(6, dtype=np.float32))


def of_tensor(x: np.ndarray, take: Callable[[object], object]) -> Callable[[], object]:
    tensor = dlbridge.from_dlpack(x)
    return lambda: take(tensor)


def rate(make: Callable[[int], Callable[[], object]], threads: int) -> float:
    """Calls per second of all threads together.

    Timed from the barrier to the end of the last thread, so time spent waiting for the GIL counts.
    """
    starts: list[float] = []
    counts: list[int] = []
    # The last thread to arrive records the time before the barrier opens.
    barrier = threading.Barrier(threads, lambda: starts.append(time.perf_counter()))

    def work(number: int) -> None:
        call, done = make(number), 0
        barrier.wait()
        while time.perf_counter() < starts[0] + ROUND_S:
            for _ in repeat(None, BATCH):
                call()
            done += BATCH
        counts.append(done)

    workers = [threading.Thread(target=work, args=[number]) for number in range(threads)]
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
