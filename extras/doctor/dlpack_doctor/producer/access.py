"""Read-only memory, and the flag that says so."""

from __future__ import annotations

from typing import Any

from dlpack_doctor import abi
from dlpack_doctor.export import Export, attempt, best, versioned
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Array, Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, combine, failed, passed, warned


def _frozen(subject: Subject) -> Array:
    """An array that must not be written."""
    array = subject.array()
    if subject.freeze is not None:
        return subject.freeze(array)
    if subject.immutable:
        return array
    if subject.says_frozen(array):
        return array
    answer = attempt(array, max_version=(1, 3))
    if isinstance(answer, Export) and answer.flags & abi.READ_ONLY:
        return array
    raise NotApplicable("has no read-only arrays")


@check("producer.read-only", "DLPack 1.3, READ_ONLY")
def read_only(subject: Subject) -> Outcome:
    """Memory that must not be written is flagged READ_ONLY."""
    array = _frozen(subject)
    export = versioned(array)
    asked: list[dict[str, Any]] = [{}, {"copy": False}, {"dl_device": export.device}]
    for keywords in asked:
        answer = attempt(array, max_version=(1, 3), **keywords)
        if isinstance(answer, Export) and answer.versioned and not answer.flags & abi.READ_ONLY:
            words = "".join(f", asked for {name}={value}" for name, value in keywords.items())
            return failed(f"a read-only array is exported as writable{words}")
    return passed()


@check(
    "producer.read-only-old",
    "array API 2022.12, __dlpack__: BufferError when the data cannot be exported",
)
def read_only_old(subject: Subject) -> Outcome:
    """read-only memory is not exported by the legacy ABI, which cannot say so."""
    array = _frozen(subject)
    outcomes = [_legacy(array)]
    if not isinstance(attempt(array, max_version=(0, 8)), TypeError):
        outcomes.append(_legacy(array, max_version=(0, 8)))
    return combine(*outcomes)


def _legacy(array: Array, **keywords: object) -> Outcome:
    answer = attempt(array, **keywords)
    if isinstance(answer, BufferError):
        return passed()
    if isinstance(answer, Exception):
        # Asked for (0, 8), `producer.version-0.8` judges the exception.
        text = f"refused by {type(answer).__name__}, not BufferError"
        return passed(text) if keywords else warned(text)
    if answer.versioned:
        return passed(f"exports {answer.kind} unasked, which says so")
    return failed("a read-only array is exported as dltensor, which cannot say so")


@check("producer.writable", "DLPack 1.3, READ_ONLY")
def writable(subject: Subject) -> Outcome:
    """Memory that may be written is not flagged READ_ONLY."""
    if subject.immutable or (
        not subject.known and subject.says_frozen(subject.array()) is not False
    ):
        raise NotApplicable("its arrays need not be writable")
    asked: tuple[tuple[int, ...] | None, ...] = ((), None)
    for shape in asked:
        try:
            array = subject.array(shape)
            export = best(array)
        except NotApplicable:
            if shape is None:
                raise
            continue
        if export.flags & abi.READ_ONLY:
            return warned(f"a writable array of shape {export.shape} is exported as read-only")
    return passed()
