"""The command line, run as its users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from dlbridge.doctor import registry

HERE = Path(__file__).parent.parent


def doctor(*words, **variables):
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "dlbridge", "doctor", *words],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"} | variables,
        timeout=300,
    )


def test_every_check_is_explained():
    ran = doctor("--list")
    assert ran.returncode == 0
    for check in registry.all_checks():
        assert f"{check.id}\n  {check.summary}\n  {check.clause}\n" in ran.stdout + "\n"


def test_checks_have_one_line_each_and_a_clause():
    for check in registry.all_checks():
        assert check.summary
        assert "\n" not in check.summary
        assert any(word in check.clause for word in ("DLPack", "array API", "not in the standard"))


def test_reports_are_written_and_progress_is_told(tmp_path):
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "html", "markdown")}
    words = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    ran = doctor("dlbridge", "numpy", *words)
    assert ran.returncode == 0, ran.stderr
    assert "numpy" in ran.stderr
    assert "producer.methods" in ran.stdout
    assert {p["consumer"] for p in json.loads(files["json"].read_text())["pairs"]} == {
        "dlbridge",
        "numpy",
    }
    assert files["html"].read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "python -m dlbridge doctor dlbridge" in files["markdown"].read_text(encoding="utf-8")

    again = doctor("dlbridge", "--check", "producer.methods", "--join", str(files["json"]))
    assert "numpy" in again.stdout


def test_strict_fails_only_for_failures():
    words = ["--check", "producer.copy-true", "--strict"]
    assert doctor("doctor.breaking:Plain", *words).returncode == 0
    assert doctor("doctor.breaking:CrashesOnCopies", *words).returncode == 1
    assert doctor("doctor.breaking:CrashesOnCopies", *words[:2]).returncode == 0


def test_another_python_is_asked_too():
    words = ["dlbridge", "--check", "producer.methods", "--python", sys.executable]
    ran = doctor(*words)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("dlbridge 0.") == 2
    # The same version of the same framework, so it is one column.
    assert ran.stdout.count("dlbridge: ") == 1


def test_an_array_api_namespace_is_examined_by_its_name():
    ran = doctor("doctor.namespace", "--check", "producer.strides")
    assert "producer.strides  pass" in ran.stdout


def test_what_is_wrong_on_the_command_line_is_told():
    assert "no such check: producer.colour" in doctor("--check", "producer.colour").stderr
    ran = doctor("no_such_module", "--no-pairs")
    assert ran.returncode == 2
    assert "not examined" in ran.stdout
    assert "neither arange nor from_dlpack" in doctor("json").stdout


def test_the_package_tells_its_programs():
    command = [sys.executable, "-m", "dlbridge"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "doctor" in ran.stderr
    ran = subprocess.run([*command, "--help"], capture_output=True, text=True)
    assert ran.returncode == 0
    assert "demo" in ran.stdout
