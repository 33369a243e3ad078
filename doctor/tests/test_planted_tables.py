"""Each fault of an exchange table is found by the check that is meant for it, and by no other."""

from __future__ import annotations

import pytest

from dlpack_doctor import Verdict, check_producer
from dlpack_doctor.registry import all_checks
from faulty_tables import FAULTS, Table, array_type

CHECKS = [check.id for check in all_checks("producer") if "speed" not in check.id]
TABLE = [check for check in CHECKS if check.startswith("producer.table")]


def failures(table, checks):
    findings = check_producer(array_type(table), checks=checks)
    return {result.check for result in findings.failures}


def test_a_table_without_a_fault_passes_everything():
    findings = check_producer(array_type(Table), checks=CHECKS)
    assert findings.failures == []
    passes = {r.check for r in findings.results if r.verdict is Verdict.PASS}
    assert set(TABLE) - {"producer.table-refusal"} <= passes


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_found_by_its_check_alone(fault):
    assert failures(fault, TABLE) == {f"producer.{FAULTS[fault]}"}
