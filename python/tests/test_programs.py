"""`python -m dlbridge` and its programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dlbridge import __main__ as programs

DOCTOR = Path(__file__).parents[2] / "doctor"


def test_the_package_tells_its_programs():
    command = [sys.executable, "-m", "dlbridge"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "doctor" in ran.stderr
    ran = subprocess.run([*command, "--help"], capture_output=True, text=True)
    assert ran.returncode == 0
    assert "demo" in ran.stdout


def test_the_doctor_is_run_where_it_is_installed(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(DOCTOR))
    assert programs.main(["doctor", "--version"]) == 0


def test_without_the_doctor_one_line_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(programs.importlib.util, "find_spec", lambda _name: None)
    assert programs.main(["doctor"]) == 2
    assert capsys.readouterr().err.endswith("pip install dlpack-doctor\n")
