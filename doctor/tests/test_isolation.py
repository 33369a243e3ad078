"""A crash or a hang is one cell, and the run goes on with the next check."""

from __future__ import annotations

import pytest

from dlpack_doctor import Verdict, registry
from dlpack_doctor.examine import examine
from dlpack_doctor.runner import Runner


def failures(findings):
    return {result.check: result.outcome.evidence for result in findings.failures}


# No destructor that ctypes makes keeps an exception that is in flight.
LEFT_OUT = ("producer.speed", "producer.exception")
PRODUCER = [check.id for check in registry.all_checks("producer") if check.id not in LEFT_OUT]
SOME = ["producer.methods", "producer.copy-true", "producer.copied-flag", "producer.deleter-thread"]


@pytest.mark.parametrize(
    ("name", "crashed"),
    [
        ("CrashesOnCopies", {"producer.copy-true", "producer.copied-flag", "producer.copy-kept"}),
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
