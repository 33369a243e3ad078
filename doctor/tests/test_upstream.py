"""The file that is offered to array-api-tests passes with NumPy, in that suite's conventions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
