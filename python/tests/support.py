"""What tests share: tensors with values, work that several threads do at the same time, and a
fake CUDA driver.

Nothing here is a GPU: what is shown is which functions are called, in which order, with what.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dlbridge


def arange(*arguments, dtype=None):
    return dlbridge.from_dlpack(np.arange(*arguments, dtype=dtype), copy=True)


def fill(tensor, value):
    tensor.numpy()[...] = value


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


HERE = Path(__file__).parent
FAKE_DRIVER = HERE.parents[1] / "crates/dlbridge-testing/src/fake_driver/driver.c"

EXECUTE = "import sys; exec(sys.argv[1], {})"
"""What a program makes goes with its names: at exit, hostile's deleter may be gone before them."""


class Driver:
    """The fake driver, built once. `run` runs a program that finds it, and returns its calls."""

    def __init__(self, folder: Path, *options: str) -> None:
        compiler = shutil.which("cc")
        if compiler is None or sys.platform != "linux":
            pytest.skip("the fake driver needs Linux and a C compiler")
        self.folder = folder
        library = folder / "libcuda.so.1"
        build = [compiler, "-shared", "-fPIC", "-pthread", *options, "-o", library, FAKE_DRIVER]
        subprocess.run(build, check=True)

    def run(self, code: str, *, fails: str = "", forgets: str = "") -> list[str]:
        """Runs a program; the driver's calls (`NAME FIRST SECOND`), without those that open it."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        log.touch()
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.folder),
            "FAKE_DRIVER_LOG": str(log),
            "FAKE_DRIVER_FAILS": fails,
            "FAKE_DRIVER_FORGETS": forgets,
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        }
        done = subprocess.run(
            [sys.executable, "-c", EXECUTE, code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        self.output = done.stdout
        return [line for line in log.read_text().splitlines() if not line.startswith("cuInit")]
