"""What the documentation says of the doctor is so, and the file that is offered to array-api-tests
passes with NumPy, in that suite's conventions."""

from __future__ import annotations

import doctest
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dlpack_doctor


def test_the_examples_work():
    results = doctest.testmod(dlpack_doctor)
    assert results.attempted > 0
    assert results.failed == 0


def test_everything_public_is_documented():
    assert dlpack_doctor.__all__ == sorted(dlpack_doctor.__all__)
    for name in dlpack_doctor.__all__:
        assert (getattr(dlpack_doctor, name).__doc__ or "").strip(), name


OFFERED = Path(__file__).parents[1] / "upstream" / "test_dlpack_cross_library.py"
NAMES = "arange, flip, float32, from_dlpack, permute_dims, reshape"


@pytest.mark.parametrize("module", ["numpy", "array_api_strict"])
def test_it_passes(tmp_path, module):
    pytest.importorskip(module)
    package = tmp_path / "array_api_tests"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_array_module.py").write_text(f"from {module} import {NAMES}\n")
    shutil.copy(OFFERED, package)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    assert "passed" in ran.stdout
