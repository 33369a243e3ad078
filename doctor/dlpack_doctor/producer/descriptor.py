"""What stands in the descriptor of a fresh, compact array."""

from __future__ import annotations

from dlbridge.doctor import abi, elements
from dlbridge.doctor.export import Export, attempt, best, both
from dlbridge.doctor.registry import check
from dlbridge.doctor.subject import Subject
from dlbridge.doctor.verdict import (
    NotApplicable,
    Outcome,
    Verdict,
    combine,
    describe,
    failed,
    passed,
    warned,
)

MAY_BE_NULL_BEFORE = (1, 2)
"""From this version on, strides must not be null."""


def null_strides(export: Export) -> Outcome:
    """What to say of a descriptor with axes and without strides."""
    version = export.version
    text = f"strides are NULL in {export.kind} with {export.ndim} axes"
    return failed(text) if version and version >= MAY_BE_NULL_BEFORE else warned(text)


@check(
    "producer.shape",
    "the descriptor's shape is the array's",
    clause="DLPack 1.3, DLTensor.ndim and .shape",
)
def shape(subject: Subject) -> Outcome:
    array = subject.array()
    said = getattr(array, "shape", None)
    expected = tuple(map(int, said)) if said is not None else subject.shape
    if said is None and not subject.any_shape:
        raise NotApplicable("its arrays do not tell their shape")
    found = best(array).shape
    return passed(f"{found}") if found == expected else failed(f"{found}, not {expected}")


@check(
    "producer.values",
    "the numbers in memory are the array's numbers",
    clause="DLPack 1.3, DLTensor: data, byte_offset, dtype, shape and strides",
)
def values(subject: Subject) -> Outcome:
    array = subject.array()
    expected = subject.expected(array)
    outcomes = []
    for export in both(array):
        # A null pointer for strides stands for compact ones; `producer.strides` judges that.
        found = export.values()
        good = found == expected
        outcomes.append(
            passed() if good else failed(f"{export.kind} holds {found[:6]}, not {expected[:6]}")
        )
    return combine(*outcomes)


@check(
    "producer.strides",
    "a compact array has explicit strides",
    clause="DLPack 1.3, DLTensor.strides: not NULL with axes (before 1.2: NULL for compact)",
)
def strides(subject: Subject) -> Outcome:
    array = subject.array()
    outcomes = []
    for export in both(array):
        if export.ndim and export.strides is None:
            outcomes.append(null_strides(export))
        else:
            outcomes.append(passed(f"{export.strides}"))
    return combine(*outcomes)


@check(
    "producer.dtypes",
    "every element type is described as what it is, or refused",
    clause="DLPack 1.3, DLDataType: code, bits and lanes",
)
def dtypes(subject: Subject) -> Outcome:
    if not subject.any_dtype:
        raise NotApplicable("its arrays have one element type only")
    given, outcomes = [], []
    for name, triple in elements.DTYPES.items():
        try:
            array = subject.array(dtype=name)
        except NotApplicable:
            continue
        answer = attempt(array, max_version=(1, 3))
        if isinstance(answer, TypeError):
            answer = attempt(array)
        if isinstance(answer, Exception):
            outcomes.append(warned(f"{name} is not exported ({describe(answer)})"))
        elif answer.dtype != triple:
            outcomes.append(failed(f"{name} is exported as {elements.name_of(answer.dtype)}"))
        elif subject.known and answer.values() != _rounded(name, answer):
            outcomes.append(failed(f"{name} has wrong values: {answer.values()[:3]}"))
        else:
            given.append(name)
    worst = combine(passed(), *outcomes)
    if worst.verdict is Verdict.PASS:
        return passed(f"{len(given)} types: {', '.join(given)}")
    return worst


def _rounded(name: str, export: Export) -> list[object]:
    count = 1
    for extent in export.shape:
        count *= extent
    return elements.sample(name, count)


@check(
    "producer.alignment",
    "elements lie on multiples of their size",
    clause="DLPack 1.3, DLTensor.data: aligned (the note says not to rely on 256 bytes)",
)
def alignment(subject: Subject) -> Outcome:
    export = best(subject.array())
    size = max(1, export.dtype[1] * export.dtype[2] // 8)
    boundary = max(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if export.pointer % n == 0)
    text = f"on {boundary} bytes" + ("" if boundary < 256 else " or more")
    return passed(text) if export.pointer % size == 0 else failed(f"{size}-byte elements {text}")


@check(
    "producer.flags",
    "a fresh array carries no flag that it has no reason for",
    clause="DLPack 1.3, DLManagedTensorVersioned.flags: 0 by default",
)
def flags(subject: Subject) -> Outcome:
    export = best(subject.array())
    if not export.versioned:
        raise NotApplicable("gives no versioned capsule")
    unknown = export.flags & ~(abi.READ_ONLY | abi.IS_COPIED | abi.SUBBYTE_PADDED)
    if unknown:
        return failed(f"unknown bits {unknown:#x}")
    if export.flags & abi.SUBBYTE_PADDED and export.dtype[1] >= 8:
        return failed("padded sub-byte elements, but the elements have whole bytes")
    return passed(f"{export.flags}")


@check(
    "producer.copied-alias",
    "IS_COPIED is set only for memory that is the consumer's alone",
    clause="DLPack 1.3, IS_COPIED: solely owned by the consumer until the deleter is called",
)
def copied_alias(subject: Subject) -> Outcome:
    array = subject.array()
    one, other = best(array), best(array)
    if not one.versioned:
        raise NotApplicable("gives no versioned capsule")
    if one.flags & other.flags & abi.IS_COPIED and one.pointer == other.pointer:
        return failed("two exports of one address, both flagged as copies")
    return passed()
