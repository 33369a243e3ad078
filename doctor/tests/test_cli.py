"""The command line, run as its users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlpack_doctor import registry

HERE = Path(__file__).parent
PATH = os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")])


def doctor(*words, **variables):
    return subprocess.run(
        [sys.executable, "-m", "dlpack_doctor", *words],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": PATH, "PYTHONIOENCODING": "utf-8"} | variables,
        timeout=300,
    )


def test_every_check_is_explained():
    ran = doctor("--list")
    assert ran.returncode == 0
    for check in registry.all_checks():
        lines = [check.id, f"  {check.summary}", f"  {check.clause}", f"  {check.means}"]
        assert "\n".join(lines) in ran.stdout


def test_a_list_that_is_cut_off_is_no_traceback():
    command = f"{sys.executable} -m dlpack_doctor --list | head -1"
    env = os.environ | {"PYTHONPATH": PATH}
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, env=env)
    assert ran.stdout == "producer.factory\n"
    assert ran.stderr == ""


def test_checks_have_one_line_each_and_a_clause():
    for check in registry.all_checks():
        assert check.summary
        assert "\n" not in check.summary
        assert check.means.endswith(".")
        assert any(word in check.clause for word in ("DLPack", "array API", "not in the standard"))


def test_the_first_screen_of_the_help_has_the_factory_contract():
    screen = "\n".join(doctor("--help").stdout.splitlines()[:24])
    for words in ("make(shape, dtype)", "__dlpack_device__", "tolist()", "exit status"):
        assert words in screen, words


def test_reports_are_written_and_progress_is_told(tmp_path):
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "html", "markdown", "badge")}
    words = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    words += ["--note", "a busy machine"]
    ran = doctor("array_api_strict", "other=numpy", *words)
    assert ran.returncode == 0, ran.stderr
    assert "other" in ran.stderr
    names = {"array_api_strict", "other"}
    found = json.loads(files["json"].read_text())
    assert {pair["consumer"] for pair in found["pairs"]} == names
    assert {subject["name"] for subject in found["subjects"]} == names
    assert files["html"].read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")
    assert "dlpack-doctor array_api_strict" in files["markdown"].read_text(encoding="utf-8")
    assert "- a busy machine" in files["markdown"].read_text(encoding="utf-8")
    assert "conforms" in files["badge"].read_text(encoding="utf-8")

    words = ["--since", str(files["json"]), "--markdown", str(files["markdown"])]
    assert doctor("other=numpy", "--check", "producer.methods", *words).returncode == 0
    assert "## What changed since" in files["markdown"].read_text(encoding="utf-8")


def test_a_failure_is_a_status_and_may_be_none():
    words = ["--check", "producer.copy-true"]
    assert doctor("breaking:Plain", *words).returncode == 0
    assert doctor("breaking:CrashesOnCopies", *words).returncode == 1
    assert doctor("breaking:CrashesOnCopies", *words, "--exit-zero").returncode == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("breaking:made_of_nothing", "RuntimeError: no memory left"),
        ("subtle_producers:takes_three_arguments", "missing 1 required positional argument"),
    ],
)
def test_a_factory_that_raises_is_a_failure_with_its_exception(name, words):
    ran = doctor(name)
    assert ran.returncode == 1
    assert words in ran.stdout
    assert "1 fail" in ran.stdout


def test_all_failures_are_shown():
    words = ["--check", "producer.factory", "--check", "producer.version-unasked", "--no-pairs"]
    ran = doctor(*(f"{n}=faulty_producers:FailsUnasked" for n in range(11)), *words)
    lines = ran.stdout.splitlines()
    assert [line.startswith("FAIL") for line in lines[:12]] == [True] * 11 + [False]


def test_verbose_shows_the_clause_the_meaning_and_a_program_that_runs():
    name = "subtle_producers:DeviceAsAList"
    ran = doctor(name, "--check", "producer.device", "-v")
    assert "standard: array API, __dlpack_device__" in ran.stdout
    assert "means: " in ran.stdout
    lines = ran.stdout.splitlines()
    start = lines.index("import subtle_producers")
    program = "\n".join(lines[start : start + 3])
    env = os.environ | {"PYTHONPATH": PATH}
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, env=env, text=True)
    assert shown.stdout == "[1, 0]\n", shown.stderr


def test_an_array_api_namespace_is_examined_by_its_name():
    ran = doctor("namespace", "--check", "producer.strides")
    assert "1 pass, 0 warn, 0 fail" in ran.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--check", "producer.colour"], "no such check: producer.colour"),
        (["nunpy"], "no module 'nunpy'; did you mean numpy?"),
        (["cupy"], "pip install cupy"),
        (["no_such_module:make", "--no-pairs"], "no module 'no_such_module'"),
    ],
)
def test_a_typo_is_one_usage_error(words, says):
    ran = doctor(*words)
    assert ran.returncode == 2
    assert says in ran.stderr
    assert ran.stderr.count("Error") == 1
    assert ran.stdout == ""


def test_a_name_that_a_module_lacks_is_not_examined():
    ran = doctor("breaking:Plane")
    assert ran.returncode == 2
    assert "breaking has no callable Plane; did you mean Plain?" in ran.stdout
    assert "neither arange nor from_dlpack" in doctor("json").stdout


def test_the_package_needs_no_dlbridge():
    program = (
        "import sys; sys.modules['dlbridge'] = None\n"
        "from dlpack_doctor import check_producer, cli\n"
        "from planted import Array\n"
        "assert check_producer(Array).ok"
    )
    env = os.environ | {"PYTHONPATH": PATH}
    subprocess.run([sys.executable, "-c", program], check=True, env=env)
