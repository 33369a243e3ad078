"""Counts the exchanges that 1, 2, 4 and 8 threads make in a second.

`cargo xtask bench python threads` runs this, with the built modules on PYTHONPATH. Each line that
it prints is a record: threads, path, who, exchanges per second, all threads together; or `note`
and what is left out, and why; tabs between.
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
# The best of the rounds counts.
ROUNDS = 11
ROUND_S = 0.1
BATCH = 500

# Exchanges so many times.
Loop = Callable[[int], None]


def loop_in(module: Any) -> Loop:
    """An array of this thread's own becomes a tensor, and one element is read."""
    read, array = module.read, np.arange(6, dtype=np.float32).reshape(2, 3)

    def run(times: int) -> None:
        for _ in repeat(None, times):
            read(array)

    return run


def loop_out(module: Any) -> Loop:
    """A new tensor becomes an array."""
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


def loop_alone(_: Any) -> Loop:
    """Python alone: how far this machine and this Python let threads run beside each other."""

    def run(times: int) -> None:
        number = 1
        for _ in repeat(None, times):
            number = number * 3 % 17

    return run


# What to run, and the functions of which a module has one if it has the path.
PATHS: dict[str, tuple[Callable[[Any], Loop], list[str]]] = {
    "in": (loop_in, ["read"]),
    "out": (loop_out, ["make", "make_numpy"]),
}


def rate(make_loop: Callable[[Any], Loop], module: Any, threads: int) -> float:
    """Exchanges per second of so many threads together.

    From when they are let go to when the last one ends: whoever waits for Python's lock meanwhile
    has lost that time.
    """
    starts: list[float] = []
    counts: list[int] = []
    problems: list[BaseException] = []
    # The last thread to arrive notes the time before it lets the others go.
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
    # In turns, so that whatever slows the machine down slows all.
    for _, threads in product(range(ROUNDS), THREADS):
        best[threads] = max(best[threads], rate(make_loop, module, threads))
    for threads, most in best.items():
        print(threads, path, who, f"{most:.0f}", sep="\t", flush=True)


def note(what: str, error: Exception) -> None:
    """Tells what is left out; of an error, its first line."""
    reason = (str(error).splitlines() or ["no message"])[0].replace("\t", " ")
    print("note", f"{what}: {type(error).__name__}: {reason}", sep="\t", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count exchanges by threads.")
    parser.add_argument("--libraries", required=True, help="names with commas between")
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
            raise SystemExit(f"{library} switched Python's lock on: measure without it (--quick)")
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
