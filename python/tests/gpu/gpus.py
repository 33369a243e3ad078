"""Runs the tests on a GPU with nothing but Python: `python gpus.py REPORT [PROGRAM ...]`.

Each class of tests is a group. A group runs in a process of its own, because a test can end the
process or its CUDA context; after a failure, another process runs the rest of the group. The
programs are Rust test binaries whose tests for a GPU are ignored elsewhere. Prints each failure and
each reason for a skipped test, then the table, which is also written to REPORT, and at last
`N passed, N failed`. Ends with 1 after a failure, and with 3 where there is no GPU.

The tests are plain unittest, because a machine with a GPU need not have pytest. They share the
functions here that find a GPU, and skip a test with the reason where there is none."""

from __future__ import annotations

import ctypes
import datetime
import importlib
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import time
import traceback
import unittest
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from types import ModuleType

HERE = pathlib.Path(__file__).parent
GROUP_SECONDS = int(os.environ.get("GPU_TESTS_SECONDS", "100"))
"""Two rounds of groups fit into the 240 seconds of a run. A loaded machine takes longer."""
NO_GPU = 3
FRAMEWORKS = ("torch", "jax", "cupy", "numba-cuda", "cuda-core", "apache-tvm-ffi", "numpy")


def driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def missing() -> str | None:
    """Why nothing can run on a GPU here; None where it can."""
    try:
        functions = driver()
    except OSError as error:
        return f"no CUDA driver: {error}"
    if code := functions.cuInit(0):
        return f"no GPU: cuInit returns {code}"
    count = ctypes.c_int()
    code = functions.cuDeviceGetCount(ctypes.byref(count))
    return None if count.value else f"no GPU: cuDeviceGetCount returns {code}"


def installed(name: str) -> ModuleType:
    """A package; skips the test where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise unittest.SkipTest(f"no {name}: {error}") from None


class OnGpu(unittest.TestCase):
    """A test that needs a GPU, and the packages that `needs` names, which are its attributes."""

    needs: tuple[str, ...] = ()

    @classmethod
    def setUpClass(cls) -> None:
        if reason := missing():
            raise unittest.SkipTest(reason)
        for name in cls.needs:
            setattr(cls, name.rpartition(".")[2], installed(name))
        if "torch" in cls.needs and not cls.torch.cuda.is_available():
            raise unittest.SkipTest("this PyTorch has no CUDA")
        if "jax" in cls.needs and cls.jax.default_backend() != "gpu":
            raise unittest.SkipTest("this JAX has no CUDA")
        if "dlbridge_example" in cls.needs and not hasattr(cls.dlbridge_example, "filled"):
            raise unittest.SkipTest("the example extension is built without CUDA")


def groups() -> dict[str, list[str]]:
    """The names of the tests of each class, in the order of the files."""
    sys.path.insert(0, str(HERE))
    found: dict[str, list[str]] = {}
    for suite in unittest.TestLoader().discover(str(HERE), "test_*.py", str(HERE)):
        for test in each(suite):
            found.setdefault(test.id().rpartition(".")[0], []).append(test.id())
    return found


def each(suite: Iterable[unittest.TestCase | unittest.TestSuite]) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


class Told(unittest.TestResult):
    """Writes each event as a line, so that the parent knows what a process did before it ended."""

    def tell(self, test: unittest.TestCase, outcome: str, why: str = "") -> None:
        # A class that is skipped in `setUpClass` has no test: its name is in parentheses.
        print(json.dumps([test.id(), outcome, why]), flush=True)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.tell(test, "begun")

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.tell(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.tell(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: tuple) -> None:
        self.tell(test, "failed", "".join(traceback.format_exception(*err)))
        self.stop()

    addError = addFailure


def child(tests: list[str]) -> None:
    """Runs tests until the first failure."""
    sys.path.insert(0, str(HERE))
    unittest.TestLoader().loadTestsFromNames(tests).run(Told())
    sys.stdout.flush()
    # What ends a process is tested by a process of its own.
    os._exit(0)


@dataclass
class Group:
    name: str
    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    seconds: float = 0.0

    def count(self, outcome: str) -> int:
        return sum(found == outcome for found, _ in self.outcomes.values())

    def remarks(self) -> Iterator[str]:
        """Each failure, and each reason for skipped tests."""
        for test, (outcome, why) in self.outcomes.items():
            if outcome == "failed":
                yield f"{test}: failed: {why}\n"
        skipped = Counter(why for outcome, why in self.outcomes.values() if outcome == "skipped")
        for why, count in skipped.items():
            yield f"{self.name}: {count} skipped: {why}\n"

    def run(self, tests: list[str]) -> Group:
        began = time.monotonic()
        left = list(tests)
        while left:
            remaining = began + GROUP_SECONDS - time.monotonic()
            if remaining <= 0:
                why = f"not begun within the {GROUP_SECONDS} seconds of its group"
                self.outcomes.update(dict.fromkeys(left, ("failed", why)))
                break
            self.some(left, remaining)
            after = [test for test in left if test not in self.outcomes]
            if after == left:
                self.outcomes.update(dict.fromkeys(left, ("failed", "the process ran no test")))
            left = [test for test in after if test not in self.outcomes]
        self.seconds = time.monotonic() - began
        return self

    def some(self, tests: list[str], seconds: float) -> None:
        """Runs tests in one process."""
        command = [sys.executable, __file__, "--child", *tests]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=seconds, check=False
            )
            printed, errors, end = done.stdout, done.stderr, ended(done.returncode)
        except subprocess.TimeoutExpired as late:
            printed, errors = (text_of(part) for part in (late.stdout, late.stderr))
            end = f"no end within the {GROUP_SECONDS} seconds of its group"
        begun = None
        for line in printed.splitlines():
            if not line.startswith('["'):
                continue
            test, outcome, why = json.loads(line)
            if outcome == "begun":
                begun = test
                continue
            # `setUpClass (module.Class)` is every test of the class.
            of_class = test.startswith("setUpClass")
            names = [name for name in tests if name not in self.outcomes] if of_class else [test]
            self.outcomes.update(dict.fromkeys(names, (outcome, why)))
            begun = None
        if begun is not None:
            self.outcomes[begun] = ("failed", f"{end}\n{errors[-4000:]}")


def text_of(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def ended(status: int) -> str:
    if status < 0:
        return f"the process ended by {signal.Signals(-status).name}"
    return f"the process ended with {status}"


def program(path: str) -> Group:
    group = Group(pathlib.Path(path).name)
    if reason := missing():
        group.outcomes[group.name] = ("skipped", reason)
        return group
    began = time.monotonic()
    try:
        done = subprocess.run(
            [path, "--ignored"], capture_output=True, text=True, timeout=GROUP_SECONDS, check=False
        )
        printed, end = done.stdout + done.stderr, ended(done.returncode)
    except (OSError, subprocess.TimeoutExpired) as error:
        printed, end = "", str(error)
    group.seconds = time.monotonic() - began
    for test, said in re.findall(r"^test (\S+)[^\n]* \.\.\. (ok|FAILED)", printed, re.MULTILINE):
        outcome = "passed" if said == "ok" else "failed"
        group.outcomes[test] = (outcome, "" if said == "ok" else printed)
    # A program that ends without its sum has crashed.
    if not group.count("failed") and "test result: ok" not in printed:
        group.outcomes[group.name] = ("failed", f"{end}\n{printed}")
    return group


def facts() -> str:
    """The device, the driver and the versions."""
    names = {name: version(name) for name in (*FRAMEWORKS, "dlbridge")}
    packages = ", ".join(f"{name} {found}" for name, found in names.items() if found)
    today = datetime.datetime.now(datetime.UTC).date()
    return f"{today}: {device()}, Python {platform.python_version()}, {packages}"


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def device() -> str:
    if reason := missing():
        return reason
    number, name = ctypes.c_int(), ctypes.create_string_buffer(100)
    functions = driver()
    functions.cuDriverGetVersion(ctypes.byref(number))
    functions.cuDeviceGetName(name, len(name), 0)
    major, minor = number.value // 1000, number.value % 1000 // 10
    return f"{name.value.decode() or 'unnamed device'}, driver {major}.{minor}"


def report(found: list[Group]) -> str:
    """The table, in Markdown."""
    lines = [facts(), "", "| group | passed | failed | skipped |", "| --- | ---: | ---: | ---: |"]
    for group in found:
        name = group.name.removeprefix("test_gpu_")
        counts = [group.count(outcome) for outcome in ("passed", "failed", "skipped")]
        lines.append(f"| `{name}` | {counts[0]} | {counts[1]} | {counts[2]} |")
    return "\n".join([*lines, ""])


def main(file: str, programs: list[str]) -> int:
    began = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [pool.submit(Group(name).run, tests) for name, tests in groups().items()]
        runs += [pool.submit(program, path) for path in programs]
        found = [run.result() for run in runs]
    for group in found:
        print("".join(group.remarks()), end="")
    table = report(found)
    pathlib.Path(file).write_text(table, encoding="utf-8")
    print(f"\n{table}")
    longest = max(group.seconds for group in found)
    print(f"{time.monotonic() - began:.0f} s; the longest group: {longest:.0f} s")
    reason = missing()
    if reason:
        print(f"no test ran on a GPU: {reason}")
    passed, failed = (sum(group.count(it) for group in found) for it in ("passed", "failed"))
    print(f"{passed} passed, {failed} failed")
    if failed:
        return 1
    return NO_GPU if reason else 0


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
