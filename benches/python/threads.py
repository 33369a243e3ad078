"""Counts the exchanges per second of 1, 2, 4 and 8 threads.

`cargo xtask bench python threads` runs this, with the built modules on PYTHONPATH. Each
printed line is a tab-separated record: threads, path, library, exchanges per second of all threads
together; or `note` and the reason why a case is omitted.
"""

import argparse
import importlib
import sys
import threading
import time
from collections.abc import Callable
from itertools import product, repeat
from typing import Any

import numpy as np

THREADS = [1, 2, 4, 8]
# The best round counts.
ROUNDS = 11
ROUND_S = 0.1
BATCH = 500

# Performs the given number of exchanges.
Loop = Callable[[int], None]


def loop_in(module: Any) -> Loop:
    """Imports an array of this thread and reads one element."""
    read, array = module.read, np.arange(6, dtype=np.float32).reshape(2, 3)

    def run(times: int) -> None:
        for _ in repeat(None, times):
            read(array)

    return run


def loop_out(module: Any) -> Loop:
    """Exports a new tensor as an array."""
    if hasattr(module, "make_numpy"):
        make, take = module.make_numpy, None
    else:
        name = "make_exporter" if hasattr(module, "make_exporter") else "make"
        make, take = getattr(module, name), np.from_dlpack

    def run(times: int) -> None:
        if take is None:
            for _ in repeat(None, times):
                make()
        else:
            for _ in repeat(None, times):
                take(make())

    return run


def loop_zeros(module: Any) -> Loop:
    """Makes 64 KiB of zeros."""

    def run(times: int) -> None:
        for _ in repeat(None, times):
            module.zeros()

    return run


def loop_alone(_: Any) -> Loop:
    """An empty loop: how well this machine and this Python run threads in parallel."""

    def run(times: int) -> None:
        number = 1
        for _ in repeat(None, times):
            number = number * 3 % 17

    return run


# The loop of each path, and the functions of which a module has one if it supports the path.
PATHS: dict[str, tuple[Callable[[Any], Loop], list[str]]] = {
    "import": (loop_in, ["read"]),
    "export": (loop_out, ["make", "make_numpy"]),
    "zeros of 64 KiB": (loop_zeros, ["zeros"]),
}


def rate(make_loop: Callable[[Any], Loop], module: Any, threads: int) -> float:
    """Exchanges per second of all threads together.

    Timed from the barrier to the end of the last thread, so time spent waiting for the GIL counts.
    """
    starts: list[float] = []
    counts: list[int] = []
    problems: list[BaseException] = []
    # The last thread to arrive records the time before the barrier opens.
    barrier = threading.Barrier(threads, lambda: starts.append(time.perf_counter()))

    def work() -> None:
        try:
            loop = make_loop(module)
            loop(BATCH)
            barrier.wait()
            done = 0
            while time.perf_counter() < starts[0] + ROUND_S:
                loop(BATCH)
                done += BATCH
            counts.append(done)
        except BaseException as error:  # PyO3 raises a panic as one
            problems.append(error)
            barrier.abort()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if problems:
        raise problems[0]
    return sum(counts) / (time.perf_counter() - starts[0])


def measure(path: str, who: str, make_loop: Callable[[Any], Loop], module: Any) -> None:
    best = dict.fromkeys(THREADS, 0.0)
    # In turns, so that other load on the machine affects all equally.
    for _, threads in product(range(ROUNDS), THREADS):
        best[threads] = max(best[threads], rate(make_loop, module, threads))
    for threads, most in best.items():
        print(threads, path, who, f"{most:.0f}", sep="\t", flush=True)


def note(what: str, error: Exception) -> None:
    """Notes an omitted case with the first line of its error."""
    reason = (str(error).splitlines() or ["no message"])[0].replace("\t", " ")
    print("note", f"{what}: {type(error).__name__}: {reason}", sep="\t", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count exchanges by threads.")
    parser.add_argument("--libraries", required=True, help="comma-separated names")
    given = parser.parse_args()
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)
    had_lock = has_lock()
    modules = {}
    for library in given.libraries.split(","):
        try:
            module = importlib.import_module(f"bench_{library}")
        except Exception as error:
            note(library, error)
            continue
        if has_lock() and not had_lock:
            raise SystemExit(f"{library} re-enabled the GIL: leave that library out (--quick)")
        modules[library] = module
    for path, (make_loop, names) in PATHS.items():
        for library, module in modules.items():
            if not any(hasattr(module, name) for name in names):
                continue
            try:
                make_loop(module)(1)
            except Exception as error:
                note(f"{path}, {library}", error)
            else:
                measure(path, library, make_loop, module)
    measure("no exchange", "Python alone", loop_alone, None)


if __name__ == "__main__":
    main()
