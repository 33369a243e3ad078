"""pytest with `--dlpack`: one test for each check."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from dlpack_doctor import registry

HERE = Path(__file__).parent
COUNT = len(registry.all_checks())


def run_pytest(folder, *words):
    path = os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "dlpack_doctor.pytest_plugin",
            str(folder),
            *words,
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        timeout=300,
    )
    return ran.returncode, ran.stdout + ran.stderr


def counts(out):
    return {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|desel)", out)}


def test_a_good_array_passes_beside_the_tests_of_its_framework(tmp_path):
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    code, out = run_pytest(tmp_path, "--dlpack", "breaking:Plain")
    assert code == 0, out
    found = counts(out)
    assert found["passed"] + found["skipped"] == COUNT + 1


def test_a_fault_fails_its_test_with_the_clause(tmp_path):
    code, out = run_pytest(tmp_path, "--dlpack", "breaking:CrashesOnCopies", "-k", "copy")
    assert code == 1
    assert "crashed (SIGSEGV)" in out
    assert "if True, always copy" in out
    assert "Traceback" not in out


def test_a_surprise_is_a_warning(tmp_path):
    code, out = run_pytest(tmp_path, "--dlpack", "numpy", "-k", "empty-data")
    assert code == 0
    assert "DlpackWarning: producer.empty-data" in out


def test_a_typo_is_a_usage_error(tmp_path):
    code, out = run_pytest(tmp_path, "--dlpack", "no_such:thing", "-k", "methods")
    assert code == 4
    assert "no module 'no_such'" in out


def test_a_subject_that_cannot_be_examined_fails(tmp_path):
    code, out = run_pytest(tmp_path, "--dlpack", "breaking:Plane", "-k", "methods")
    assert code == 1
    assert "cannot be examined" in out


def test_without_the_flag_nothing_is_added(tmp_path):
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    code, out = run_pytest(tmp_path)
    assert (code, counts(out)) == (0, {"passed": 1})
