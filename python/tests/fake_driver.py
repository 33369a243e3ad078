"""A library that plays the CUDA driver, and programs that run beside it.

Nothing here is a GPU: what is shown is which functions are called, in which order, with what.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Notes each call, and does nothing else.
NOTES_CALLS = HERE / "fake_driver.c"
# Does what is queued, as late as it may.
IS_LATE = HERE.parents[1] / "crates/dlbridge-testing/src/late_driver.c"

EXECUTE = "import sys; exec(sys.argv[1], {})"
"""What a program makes goes with its names: at exit, hostile's deleter may be gone before them."""


class Driver:
    """The library, built once; `run` is a program that finds it, and what it was asked."""

    def __init__(self, folder: Path, source: Path = NOTES_CALLS) -> None:
        compiler = shutil.which("cc")
        if compiler is None or sys.platform != "linux":
            pytest.skip("a C compiler of Linux builds the library that plays the driver")
        self.folder = folder
        library = folder / "libcuda.so.1"
        build = [compiler, "-shared", "-fPIC", "-pthread", "-o", library, source]
        subprocess.run(build, check=True)

    def run(self, code: str, *, fails: str = "", forgets: str = "") -> list[str]:
        """Runs a program; the calls that the driver got, without those that only open it."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        log.touch()
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.folder),
            "FAKE_DRIVER_LOG": str(log),
            "FAKE_DRIVER_FAILS": fails,
            "LATE_DRIVER_FORGETS": forgets,
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        }
        done = subprocess.run(
            [sys.executable, "-c", EXECUTE, code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        self.output = done.stdout
        return [line for line in log.read_text().splitlines() if not line.startswith("init")]
