"""Thirty faults, each found, and explained by the clause that it breaks and by no other."""

from __future__ import annotations

import pytest

from dlpack_doctor import check_consumer, check_producer
from dlpack_doctor.examine import examine
from dlpack_doctor.registry import all_checks
from thirty_consumers import CONSUMERS, Consumer, Keywords
from thirty_producers import PRODUCERS, Grid, LosesTheException

CLAUSES = {check.id: check.clause for check in all_checks()}
PRODUCER_CHECKS, CONSUMER_CHECKS = (
    [check.id for check in all_checks(side) if "speed" not in check.id]
    for side in ("producer", "consumer")
)


def producer_failures(make):
    if make is LosesTheException:
        # In a process of its own, which it may end.
        return explained(examine([f"thirty_producers:{make.__name__}"], checks=PRODUCER_CHECKS))
    return explained(check_producer(make, checks=PRODUCER_CHECKS))


def consumer_failures(make):
    values, pointer = (lambda array: array.tolist()), (lambda array: array.pointer)
    return explained(check_consumer(make(), values=values, pointer=pointer, checks=CONSUMER_CHECKS))


def explained(findings):
    return {result.check: CLAUSES[result.check] for result in findings.failures}


def test_there_are_thirty():
    assert len(PRODUCERS) + len(CONSUMERS) == 30


def test_without_a_fault_nothing_fails():
    assert producer_failures(Grid) == {}
    assert consumer_failures(Consumer) == {}
    assert consumer_failures(Keywords) == {}


@pytest.mark.parametrize("fault", PRODUCERS, ids=lambda fault: fault.__name__)
def test_a_fault_of_a_producer_is_found_by_its_clause(fault):
    expect(producer_failures(fault), PRODUCERS[fault])


@pytest.mark.parametrize("fault", CONSUMERS, ids=lambda fault: fault.__name__)
def test_a_fault_of_a_consumer_is_found_by_its_clause(fault):
    expect(consumer_failures(fault), CONSUMERS[fault])


def expect(failures, words):
    assert failures, "not found"
    wrong = {check: said for check, said in failures.items() if not any(w in said for w in words)}
    assert not wrong, f"explained by other clauses: {wrong}"
