"""Runs the tests on a GPU with nothing but Python: `python run.py [TEST PROGRAM ...]`.

The programs are Rust test binaries whose tests for a GPU are ignored elsewhere. Prints every
skipped test with its reason, and at the end `N passed, N failed`. Ends with 3 where no GPU is.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import unittest

import gpus

NO_GPU = 3


def python_tests() -> tuple[int, int]:
    folder = str(pathlib.Path(__file__).parent)
    suite = unittest.TestLoader().discover(folder, "test_gpu_*.py", folder)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    failed = len(result.failures) + len(result.errors)
    return result.testsRun - failed - len(result.skipped), failed


def program(path: str) -> tuple[int, int]:
    if reason := gpus.missing():
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
    reason = gpus.missing()
    if reason:
        print(f"nothing was shown of a GPU: {reason}")
    print(f"{passed} passed, {failed} failed")
    if failed:
        return 1
    return NO_GPU if reason else 0


if __name__ == "__main__":
    sys.exit(main())
