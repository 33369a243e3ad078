"""`scripts/gpu-tests.sh run`: what it prints and how it ends, here and where a GPU is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fake_driver

SCRIPT = Path(__file__).parents[2] / "scripts/gpu-tests.sh"
GPU_TESTS = Path(__file__).parent / "gpu"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform == "win32", reason="a script for sh"),
]


@pytest.fixture
def packed(tmp_path):
    """What `pack` makes, with the wheel that is installed here and a program that tells counts."""
    shutil.copytree(GPU_TESTS, tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    with zipfile.ZipFile(tmp_path / "none.whl", "w") as wheel:
        wheel.writestr("none-0.dist-info/METADATA", "")
    (tmp_path / "programs").mkdir()
    return tmp_path


def program(packed: Path, said: str) -> None:
    (packed / "programs/rust").write_text(f"#!/bin/sh\necho '{said}'\n")


def run(*arguments: object, libraries: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    if libraries:
        environment["LD_LIBRARY_PATH"] = str(libraries)
    command = ["sh", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def has_driver() -> bool:
    asks = "import gpus; raise SystemExit(gpus.missing() is None)"
    return subprocess.run([sys.executable, "-c", asks], cwd=GPU_TESTS, check=False).returncode == 1


@pytest.mark.skipif(has_driver(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so_and_ends_with_3(packed):
    program(packed, "test result: ok. 9 passed; 0 failed")
    done = run("run", packed)
    *_, reason, last = done.stdout.splitlines()
    assert reason.startswith("nothing was shown of a GPU: no CUDA driver: libcuda.so.1")
    assert last.endswith(" passed, 0 failed")
    assert done.returncode == 3, done.stderr
    assert "rust: skipped: no CUDA driver" in done.stdout
    assert "skipped 'no CUDA driver" in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("said", "failed", "code"),
    [
        ("test result: ok. 9 passed; 0 failed", 0, 0),
        ("test result: FAILED. 8 passed; 2 failed", 2, 1),
        ("Segmentation fault", 1, 1),
    ],
)
def test_the_programs_are_counted_where_a_gpu_is(packed, tmp_path_factory, said, failed, code):
    # Found by the driver that is played; no framework here can use it.
    folder = tmp_path_factory.mktemp("driver")
    fake_driver.Driver(folder, fake_driver.IS_LATE)
    for test in (packed / "tests").glob("test_gpu_*.py"):
        test.unlink()
    program(packed, said)
    done = run("run", packed, libraries=folder)
    passed = {0: 9, 2: 8, 1: 0}[failed]
    assert done.stdout.splitlines()[-1] == f"{passed} passed, {failed} failed"
    assert done.returncode == code, done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "wanted: pack DIR"),
        (["frob"], "wanted: pack DIR"),
        (["run"], "run: wanted a folder"),
        (["pack"], "pack: wanted a folder"),
        (["run", "/nowhere"], "nothing was packed in /nowhere"),
    ],
)
def test_an_examination_that_cannot_start_ends_with_2(arguments, said):
    done = run(*arguments)
    assert done.returncode == 2
    assert f"gpu-tests.sh: {said}" in done.stderr


def test_a_missing_wheel_is_said(packed):
    (packed / "none.whl").unlink()
    done = run("run", packed)
    assert done.returncode == 2
    assert "no wheel in" in done.stderr
