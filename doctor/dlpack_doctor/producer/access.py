"""Memory that must not be written, and whether the consumer is told."""

from __future__ import annotations

from dlbridge.doctor import abi
from dlbridge.doctor.export import Export, attempt, best
from dlbridge.doctor.registry import check
from dlbridge.doctor.subject import Array, Subject
from dlbridge.doctor.verdict import NotApplicable, Outcome, failed, passed, warned


def _frozen(subject: Subject) -> Array:
    """An array that must not be written."""
    array = subject.array()
    if subject.freeze is not None:
        return subject.freeze(array)
    if subject.immutable:
        return array
    answer = attempt(array, max_version=(1, 3))
    if isinstance(answer, Export) and answer.flags & abi.READ_ONLY:
        return array
    raise NotApplicable("has no read-only arrays")


@check(
    "producer.read-only",
    "memory that must not be written is flagged READ_ONLY",
    clause="DLPack 1.3, READ_ONLY",
)
def read_only(subject: Subject) -> Outcome:
    export = best(_frozen(subject))
    if not export.versioned:
        raise NotApplicable("gives the old ABI only, which has no flags")
    if export.flags & abi.READ_ONLY:
        return passed()
    return failed("a read-only array is exported as writable")


@check(
    "producer.read-only-old",
    "the old ABI, which cannot say read-only, is refused for such memory",
    clause="array API 2022.12, __dlpack__: BufferError when the data cannot be exported",
)
def read_only_old(subject: Subject) -> Outcome:
    answer = attempt(_frozen(subject))
    if isinstance(answer, BufferError):
        return passed()
    if isinstance(answer, Exception):
        return warned(f"refused by {type(answer).__name__}, not BufferError")
    if answer.versioned:
        return passed(f"gives {answer.kind} unasked, which says so")
    return failed("a read-only array goes out as dltensor: nobody can tell")


@check(
    "producer.writable",
    "memory that may be written is not flagged READ_ONLY",
    clause="DLPack 1.3, READ_ONLY",
)
def writable(subject: Subject) -> Outcome:
    if subject.immutable or not subject.known:
        raise NotApplicable("its arrays need not be writable")
    for shape in ((), subject.shape):
        try:
            export = best(subject.array(shape))
        except NotApplicable:
            if shape:
                raise
            continue
        if export.flags & abi.READ_ONLY:
            return warned(f"a writable array of shape {shape} is exported as read-only")
    return passed()
