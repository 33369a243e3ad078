"""Each fault of a consumer is found by the check that is meant for it, and by no other."""

from __future__ import annotations

import pytest

from dlpack_doctor import Verdict, check_consumer
from dlpack_doctor.registry import all_checks
from faulty_consumers import FAULTS as FAULTY
from faulty_consumers import SURPRISES
from planted import Consumer
from subtle_consumers import FAULTS as SUBTLE

FAULTS = FAULTY | SUBTLE
# The time of an import is no part of these tests.
CHECKS = [check.id for check in all_checks("consumer") if "speed" not in check.id]


def examine(consumer):
    return check_consumer(
        consumer,
        values=lambda array: array.tolist(),
        pointer=lambda array: array.pointer,
        checks=CHECKS,
    )


def named(findings, verdict):
    return {result.check for result in findings.results if result.verdict is verdict}


def test_a_consumer_without_a_fault_passes_everything_that_applies():
    findings = examine(Consumer())
    assert named(findings, Verdict.FAIL) == set()
    assert named(findings, Verdict.WARN) == set()
    assert len(named(findings, Verdict.PASS)) > 30


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_found_by_its_check_alone(fault):
    findings = examine(fault())
    assert named(findings, Verdict.FAIL) == {f"consumer.{name}" for name in FAULTS[fault]}


@pytest.mark.parametrize("surprise", SURPRISES, ids=lambda surprise: surprise.__name__)
def test_what_is_allowed_but_surprising_is_a_warning(surprise):
    findings = examine(surprise())
    assert named(findings, Verdict.FAIL) == set()
    assert named(findings, Verdict.WARN) == {f"consumer.{name}" for name in SURPRISES[surprise]}
