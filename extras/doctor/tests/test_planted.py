"""Each planted fault is found by the check that is meant for it, and by no other; each of thirty
faults, written before the checks for them, is found and explained by the clause that it breaks."""

from __future__ import annotations

import shutil

import pytest
from missed_faults import CONSUMERS as MISSED_CONSUMERS
from missed_faults import PRODUCERS as MISSED_PRODUCERS

from dlpack_doctor import Verdict, check_consumer, check_producer
from dlpack_doctor.examine import examine
from dlpack_doctor.registry import all_checks, run
from dlpack_doctor.subject import Subject
from dlpack_doctor.verdict import Check
from faulty_consumers import FAULTS as FAULTY_CONSUMERS
from faulty_consumers import SURPRISES as CONSUMER_SURPRISES
from faulty_producers import FAULTS as FAULTY_PRODUCERS
from faulty_producers import SURPRISES as PRODUCER_SURPRISES
from faulty_producers import DoubleDeleter, Leaking, kept
from faulty_tables import FAULTS as TABLE_FAULTS
from faulty_tables import Table, array_type
from planted import Array, Consumer
from subtle_consumers import FAULTS as SUBTLE_CONSUMERS
from subtle_producers import FAULTS as SUBTLE_PRODUCERS
from subtle_producers import CountsOneDescriptor
from thirty_faults import CONSUMERS, PRODUCERS, Grid, Keywords, LosesTheException

# The times of an export and an import are no part of these tests.
PRODUCER_CHECKS, CONSUMER_CHECKS = (
    [check.id for check in all_checks(side) if "speed" not in check.id]
    for side in ("producer", "consumer")
)
PRODUCER_FAULTS = FAULTY_PRODUCERS | SUBTLE_PRODUCERS


def named(findings, verdict):
    return {result.check for result in findings.results if result.verdict is verdict}


def test_an_array_without_a_fault_passes_everything_that_applies():
    findings = check_producer(Array)
    assert named(findings, Verdict.FAIL) == set()
    assert named(findings, Verdict.WARN) == set()
    assert len(named(findings, Verdict.PASS)) > 35


@pytest.mark.skipif(shutil.which("cc") is None, reason="the destructor is C")
@pytest.mark.parametrize("base", ["planted:Array", "thirty_faults:Grid"])
def test_the_arrays_that_faults_are_planted_in_have_none_on_the_command_line(base):
    findings = examine([base], checks=PRODUCER_CHECKS)
    assert findings.failures == []
    assert "producer.exception" in named(findings, Verdict.PASS)


@pytest.mark.parametrize("fault", PRODUCER_FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_of_a_producer_is_found_by_its_check_alone(fault):
    findings = check_producer(
        fault if fault is not DoubleDeleter else lambda: fault(), checks=PRODUCER_CHECKS
    )
    kept.clear()
    assert named(findings, Verdict.FAIL) == {f"producer.{PRODUCER_FAULTS[fault]}"}
    with pytest.raises(AssertionError, match=f"producer.{PRODUCER_FAULTS[fault]}"):
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


@pytest.mark.parametrize("surprise", PRODUCER_SURPRISES, ids=lambda surprise: surprise.__name__)
def test_what_a_producer_may_do_but_surprises_is_a_warning(surprise):
    findings = check_producer(surprise, checks=PRODUCER_CHECKS)
    assert named(findings, Verdict.FAIL) == set()
    assert named(findings, Verdict.WARN) == {
        f"producer.{name}" for name in PRODUCER_SURPRISES[surprise]
    }


def test_a_buffer_that_pytorch_reads_as_one_axis_is_a_warning():
    dlbridge = pytest.importorskip("dlbridge", reason="dlbridge is not installed")
    findings = check_producer(
        lambda shape, dtype: dlbridge.zeros(shape, dtype=dtype), checks=["producer.torch-asarray"]
    )
    assert named(findings, Verdict.WARN) == {"producer.torch-asarray"}
    torch = pytest.importorskip("torch", reason="torch is not installed")
    array = dlbridge.zeros((2, 3))
    assert (torch.asarray(array).dim(), torch.as_tensor(array).dim()) == (1, 2)


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
    assert {"producer.0-d", "producer.empty"} <= unasked
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


CONSUMER_FAULTS = FAULTY_CONSUMERS | SUBTLE_CONSUMERS


def examine_consumer(consumer):
    return check_consumer(
        consumer,
        values=lambda array: array.tolist(),
        pointer=lambda array: array.pointer,
        checks=CONSUMER_CHECKS,
    )


def test_a_consumer_without_a_fault_passes_everything_that_applies():
    findings = examine_consumer(Consumer())
    assert named(findings, Verdict.FAIL) == set()
    assert named(findings, Verdict.WARN) == set()
    assert len(named(findings, Verdict.PASS)) > 30


@pytest.mark.parametrize("fault", CONSUMER_FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_of_a_consumer_is_found_by_its_check_alone(fault):
    findings = examine_consumer(fault())
    assert named(findings, Verdict.FAIL) == {f"consumer.{name}" for name in CONSUMER_FAULTS[fault]}


@pytest.mark.parametrize("surprise", CONSUMER_SURPRISES, ids=lambda surprise: surprise.__name__)
def test_what_a_consumer_may_do_but_surprises_is_a_warning(surprise):
    findings = examine_consumer(surprise())
    assert named(findings, Verdict.FAIL) == set()
    assert named(findings, Verdict.WARN) == {
        f"consumer.{name}" for name in CONSUMER_SURPRISES[surprise]
    }


@pytest.mark.parametrize("fault", MISSED_PRODUCERS, ids=lambda fault: fault.__name__)
def test_a_producers_fault_that_was_missed_is_found_by_its_check_alone(fault):
    findings = check_producer(fault, checks=PRODUCER_CHECKS)
    assert named(findings, Verdict.FAIL) == {f"producer.{name}" for name in MISSED_PRODUCERS[fault]}


@pytest.mark.parametrize("fault", MISSED_CONSUMERS, ids=lambda fault: fault.__name__)
def test_a_consumers_fault_that_was_missed_is_found_by_its_check_alone(fault):
    findings = examine_consumer(fault())
    assert named(findings, Verdict.FAIL) == {f"consumer.{name}" for name in MISSED_CONSUMERS[fault]}


TABLE = [check for check in PRODUCER_CHECKS if check.startswith("producer.table")]


def failures(table, checks):
    findings = check_producer(array_type(table), checks=checks)
    return {result.check for result in findings.failures}


def test_a_table_without_a_fault_passes_everything():
    findings = check_producer(array_type(Table), checks=PRODUCER_CHECKS)
    assert findings.failures == []
    passes = {r.check for r in findings.results if r.verdict is Verdict.PASS}
    assert set(TABLE) - {"producer.table-refusal"} <= passes


@pytest.mark.parametrize("fault", TABLE_FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_of_a_table_is_found_by_its_check_alone(fault):
    assert failures(fault, TABLE) == {f"producer.{TABLE_FAULTS[fault]}"}


CLAUSES = {check.id: check.clause for check in all_checks()}


def producer_failures(make):
    if make is LosesTheException:
        # In a process of its own, which it may end.
        return explained(examine([f"thirty_faults:{make.__name__}"], checks=PRODUCER_CHECKS))
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
