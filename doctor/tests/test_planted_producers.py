"""Each fault of a producer is found by the check that is meant for it, and by no other."""

from __future__ import annotations

import pytest

from dlpack_doctor import Verdict, check_producer
from dlpack_doctor.registry import all_checks, run
from dlpack_doctor.subject import Subject
from dlpack_doctor.verdict import Check
from faulty_producers import FAULTS as FAULTY
from faulty_producers import SURPRISES, DoubleDeleter, Leaking, kept
from planted import Array
from subtle_producers import FAULTS as SUBTLE
from subtle_producers import CountsOneDescriptor

FAULTS = FAULTY | SUBTLE
# The times of an export are no part of these tests.
CHECKS = [check.id for check in all_checks("producer") if "speed" not in check.id]


def named(findings, verdict):
    return {result.check for result in findings.results if result.verdict is verdict}


def test_an_array_without_a_fault_passes_everything_that_applies():
    findings = check_producer(Array)
    assert named(findings, Verdict.FAIL) == set()
    assert named(findings, Verdict.WARN) == set()
    assert len(named(findings, Verdict.PASS)) > 35


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_found_by_its_check_alone(fault):
    findings = check_producer(
        fault if fault is not DoubleDeleter else lambda: fault(), checks=CHECKS
    )
    kept.clear()
    assert named(findings, Verdict.FAIL) == {f"producer.{FAULTS[fault]}"}
    with pytest.raises(AssertionError, match=f"producer.{FAULTS[fault]}"):
        findings.raise_for_failures()


def test_a_leak_is_found_where_the_allocator_has_pages_to_use_again():
    # The C library takes blocks from its heap once blocks of their size were freed, and a block
    # in use above a freed one keeps the freed one's pages.
    blocks = [bytearray(8 << 20) for _ in range(40)]
    del blocks
    blocks = [bytearray(b"1") * (8 << 20) for _ in range(40)]
    above = bytearray(b"1") * 200_000
    del blocks
    findings = check_producer(Leaking, checks=["producer.unconsumed"])
    kept.clear()
    assert named(findings, Verdict.FAIL) == {"producer.unconsumed"}
    assert len(above) == 200_000


@pytest.mark.parametrize("surprise", SURPRISES, ids=lambda surprise: surprise.__name__)
def test_what_is_allowed_but_surprising_is_a_warning(surprise):
    findings = check_producer(surprise, checks=CHECKS)
    assert named(findings, Verdict.FAIL) == set()
    assert named(findings, Verdict.WARN) == {f"producer.{name}" for name in SURPRISES[surprise]}


def test_memory_that_is_read_only_and_not_flagged_is_found():
    class Forgets(Array):
        def __dlpack__(self, *, max_version=None, **keywords):
            if max_version is None or max_version < (1, 0):
                raise BufferError("read-only")
            return super().__dlpack__(max_version=max_version, **keywords)

    subject = Subject("forgets", make=Forgets, immutable=True)
    failures = [check.id for check in all_checks("producer") if run_fails(check, subject)]
    assert failures == ["producer.read-only"]


def run_fails(check: Check, subject: Subject) -> bool:
    return run(check, subject).verdict is Verdict.FAIL


def test_a_factory_without_arguments_is_enough():
    findings = check_producer(lambda: Array())
    assert named(findings, Verdict.FAIL) == set()
    unasked = named(findings, Verdict.NOT_APPLICABLE)
    assert {"producer.rank-0", "producer.empty"} <= unasked
    assert "producer.values" in named(findings, Verdict.PASS)


def test_a_shape_that_is_a_method_is_no_shape():
    class Method(Array):
        def __init__(self, shape=(2, 3), dtype="float32"):
            super().__init__(shape, dtype)
            self.asked, self.shape = shape, None

        def export_as(self, versioned, copy=False):
            self.shape = self.asked
            try:
                return super().export_as(versioned, copy)
            finally:
                self.shape = self.asked.__len__

    checks = ["producer.factory", "producer.shape", "producer.abis-agree"]
    assert check_producer(Method, checks=checks).ok


def test_capsules_may_share_a_managed_tensor_whose_deleter_counts():
    checks = ["producer.fresh-capsule", "producer.two-exports", "producer.consumed"]
    assert check_producer(CountsOneDescriptor, checks=checks).ok


def test_an_unknown_check_is_refused_by_name():
    with pytest.raises(ValueError, match=r"producer\.colour"):
        check_producer(Array, checks=["producer.colour"])
