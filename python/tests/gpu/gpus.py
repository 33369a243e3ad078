"""Runs the tests on a GPU with nothing but Python: `python gpus.py [TEST PROGRAM ...]`.

The programs are Rust test binaries whose tests for a GPU are ignored elsewhere. Prints every
skipped test with its reason, and at the end `N passed, N failed`. Ends with 3 where no GPU is.
What the tests share is here as well: finding a GPU, and skipping with the reason where there is
none. Plain unittest, since the machines with GPUs need not have pytest."""

from __future__ import annotations

import ctypes
import importlib
import pathlib
import re
import subprocess
import sys
import unittest
from types import ModuleType


def missing() -> str | None:
    """Why nothing can run on a GPU here; None where it can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no CUDA driver: {error}"
    if code := driver.cuInit(0):
        return f"no GPU: cuInit says {code}"
    count = ctypes.c_int()
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    return None if count.value else f"no GPU: cuDeviceGetCount says {code}"


def framework(name: str) -> ModuleType:
    """A framework that can use the GPU; skips the test where there is none."""
    if reason := missing():
        raise unittest.SkipTest(reason)
    return installed(name)


def installed(name: str) -> ModuleType:
    """A package; skips the test where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise unittest.SkipTest(f"no {name}: {error}") from None


NO_GPU = 3


def python_tests() -> tuple[int, int]:
    folder = str(pathlib.Path(__file__).parent)
    suite = unittest.TestLoader().discover(folder, "test_gpu.py", folder)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    failed = len(result.failures) + len(result.errors)
    return result.testsRun - failed - len(result.skipped), failed


def program(path: str) -> tuple[int, int]:
    if reason := missing():
        print(f"{path}: skipped: {reason}")
        return 0, 0
    try:
        done = subprocess.run([path, "--ignored"], capture_output=True, text=True, check=False)
    except OSError as error:
        print(f"{path}: cannot be run: {error}")
        return 0, 1
    print(done.stdout, done.stderr)
    counts = re.search(r"(\d+) passed; (\d+) failed", done.stdout)
    # One that ends without a count has crashed.
    return (int(counts[1]), int(counts[2])) if counts else (0, 1)


def main() -> int:
    counts = [python_tests(), *map(program, sys.argv[1:])]
    passed, failed = (sum(column) for column in zip(*counts, strict=True))
    reason = missing()
    if reason:
        print(f"nothing was shown of a GPU: {reason}")
    print(f"{passed} passed, {failed} failed")
    if failed:
        return 1
    return NO_GPU if reason else 0


if __name__ == "__main__":
    sys.exit(main())
