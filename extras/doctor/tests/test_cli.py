"""The doctor, run as its users run it: the command line, pytest with `--dlpack`, and programs that
show a finding. A crash or a hang is one cell, and the run goes on with the next check."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dlpack_doctor import Verdict, registry
from dlpack_doctor.examine import examine
from dlpack_doctor.frameworks import installed
from dlpack_doctor.runner import Runner

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


def test_an_array_api_namespace_is_examined_by_its_name(tmp_path):
    """One that the doctor does not know: NumPy's."""
    names = "arange, astype, float32, from_dlpack, reshape"
    (tmp_path / "namespace.py").write_text(f"from numpy import {names}\n")
    path = os.pathsep.join([PATH, str(tmp_path)])
    ran = doctor("namespace", "--check", "producer.strides", PYTHONPATH=path)
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


def found(name, check):
    if name.partition(":")[0] not in [*installed(), "breaking"]:
        pytest.skip(f"{name} is not installed")
    return examine([name], checks=[check], pairs=False).of(check, name)


def run_program(program):
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


@pytest.mark.parametrize(
    ("name", "check", "shows"),
    [
        ("numpy", "producer.empty-data", "'byte_offset': 0"),
        ("torch", "producer.copied-flag", "'flags': 0"),
        ("torch", "consumer.negative", "strides=[3, -1]"),
        ("torch", "producer.table-major", "tensor("),
        ("jax", "producer.read-only-old", "'byte_offset': 0"),
        ("torch", "producer.refusal", "[2.0]"),
        ("torch", "consumer.no-methods", "invalid capsule"),
        ("jax", "consumer.null-deleter", ""),
        (
            "breaking:forgetful_from_dlpack",
            "consumer.byte-offset",
            "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]",
        ),
    ],
)
def test_a_program_shows_the_finding(name, check, shows):
    outcome = found(name, check)
    assert outcome.verdict in (Verdict.FAIL, Verdict.WARN)
    assert len(outcome.reproducer.splitlines()) <= 8
    ran = run_program(outcome.reproducer)
    assert shows in ran.stdout + ran.stderr, outcome.reproducer + ran.stderr
    if "crashed" in outcome.evidence:
        assert ran.returncode < 0


def test_every_program_is_python():
    for result in examine(["numpy", "array_api_strict"], pairs=False).results:
        ast.parse(result.outcome.reproducer)


def failures(findings):
    return {result.check: result.outcome.evidence for result in findings.failures}


# No destructor that ctypes makes keeps an exception that is in flight.
LEFT_OUT = ("producer.speed", "producer.exception")
PRODUCER = [check.id for check in registry.all_checks("producer") if check.id not in LEFT_OUT]
SOME = ["producer.methods", "producer.copy-true", "producer.copied-flag", "producer.deleter-thread"]


# The checks that ask for a copy.
COPIES = {
    "producer.copied-alias",
    "producer.copied-flag",
    "producer.copy-kept",
    "producer.copy-true",
    "producer.unconsumed",
    "producer.version-1",
}


@pytest.mark.parametrize(
    ("name", "crashed"),
    [
        ("CrashesOnCopies", COPIES),
        ("CrashesOnForeignThreads", {"producer.deleter-thread"}),
    ],
)
def test_a_crash_is_named_and_the_rest_is_still_checked(name, crashed):
    findings = examine([f"breaking:{name}"], checks=PRODUCER)
    assert failures(findings) == dict.fromkeys(crashed, "crashed (SIGSEGV)")
    assert [result.check for result in findings.results] == PRODUCER


def test_an_exit_is_named():
    findings = examine(["breaking:ExitsOnCopies"], checks=SOME)
    assert set(failures(findings).values()) == {"crashed (exit code 3)"}


def test_a_hang_is_ended_and_named():
    tasks = [("check", "breaking:HangsOnCopies", check) for check in SOME]
    answers = list(Runner(task_seconds=1).run(tasks))
    evidence = {answer.task[2]: answer.outcome for answer in answers}
    assert list(evidence) == SOME
    assert evidence["producer.copy-true"].evidence == "hung (over 2 s)"
    assert evidence["producer.methods"].verdict is Verdict.PASS
    assert evidence["producer.deleter-thread"].verdict is Verdict.PASS


def test_a_consumer_may_crash_too():
    findings = examine(["breaking:crashing_from_dlpack"])
    assert failures(findings) == {"consumer.unknown-device": "crashed (SIGBUS)"} | {
        check: text for check, text in failures(findings).items() if "refus" in check
    }
    assert failures(findings)["consumer.refused-released"] == "crashed (SIGBUS)"


def test_a_subject_that_cannot_be_imported_is_told_and_the_others_are_examined():
    findings = examine(["no_such_module:x", "breaking:Plain"], checks=SOME)
    first, second = findings.subjects
    assert "no_such_module" in first.problem
    assert not second.problem
    assert {result.subject for result in findings.results} == {"breaking:Plain"}


def test_arrays_that_cannot_be_made_are_not_applicable():
    findings = examine(["breaking:made_of_nothing"], checks=SOME)
    assert {result.verdict for result in findings.results} == {Verdict.NOT_APPLICABLE}
    assert "no memory left" in findings.results[0].outcome.evidence


def test_pairs_are_examined_both_ways():
    findings = examine(["array_api_strict", "numpy"], checks=["producer.methods"])
    assert {(pair.producer, pair.consumer): pair.outcome.evidence for pair in findings.pairs} == {
        (one, other): "same memory"
        for one in ("array_api_strict", "numpy")
        for other in ("array_api_strict", "numpy")
    }
