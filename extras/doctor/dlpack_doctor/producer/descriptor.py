"""The descriptor of a fresh, contiguous array."""

from __future__ import annotations

import contextlib
from typing import Any

from dlpack_doctor import abi, elements
from dlpack_doctor.export import Export, attempt, best, both, versioned
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Array, Subject, shape_of
from dlpack_doctor.verdict import (
    Malformed,
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


@check("producer.shape", "DLPack 1.3, DLTensor.ndim and .shape")
def shape(subject: Subject) -> Outcome:
    """The descriptor's shape is the array's."""
    array = subject.array()
    said = shape_of(array)
    expected = subject.shape if said is None else said
    if said is None and not subject.any_shape:
        raise NotApplicable("its arrays have no shape attribute")
    # Both are read: a legacy capsule has a shape of its own.
    try:
        for export in reversed(both(array)):
            found = export.shape
    except Malformed as error:
        return failed(str(error))
    found = best(array).shape
    return passed(f"{found}") if found == expected else failed(f"{found}, not {expected}")


@check("producer.values", "DLPack 1.3, DLTensor: data, byte_offset, dtype, shape and strides")
def values(subject: Subject) -> Outcome:
    """The numbers in memory are the array's numbers."""
    array = subject.array()
    expected = subject.expected(array)
    # NULL strides stand for contiguous ones; `producer.strides` judges that, and strides in bytes.
    export = best(array)
    if not export.in_bytes and not export.tensor.data and expected:
        return failed(f"data is NULL, but the array has {len(expected)} elements")
    found = export.values()
    return passed() if found == expected else failed(f"holds {found[:6]}, not {expected[:6]}")


@check("producer.abis-agree", "DLPack 1.3, DLManagedTensorVersioned.dl_tensor: the same DLTensor")
def abis_agree(subject: Subject) -> Outcome:
    """The legacy and the versioned capsule describe the same tensor."""
    array = subject.array()
    exports = both(array)
    if len(exports) < 2:
        raise NotApplicable("it has one ABI only")
    one, other = exports
    for name in ("dtype", "device", "shape"):
        first, second = getattr(one, name), getattr(other, name)
        if first != second:
            return failed(f"{name}: {first} in {one.kind}, {second} in {other.kind}")
    first, second = (e.strides or elements.row_major(e.shape) for e in exports)
    if first != second:
        return failed(f"strides: {first} in {one.kind}, {second} in {other.kind}")
    if one.values() != other.values():
        return failed(f"{one.kind} holds {one.values()[:6]}, {other.kind} {other.values()[:6]}")
    return passed()


@check(
    "producer.strides",
    "DLPack 1.3, DLTensor.strides: not NULL with axes (before 1.2: NULL for contiguous)",
)
def strides(subject: Subject) -> Outcome:
    """A contiguous array has explicit strides."""
    array = subject.array()
    outcomes = []
    for export in both(array):
        if export.in_bytes:
            text = f"{export.strides} for shape {export.shape}: bytes, not elements"
            outcomes.append(failed(text))
        elif export.ndim and export.strides is None:
            outcomes.append(null_strides(export))
        else:
            outcomes.append(passed(f"{export.strides}"))
    return combine(*outcomes)


@check("producer.dtypes", "DLPack 1.3, DLDataType: code, bits and lanes")
def dtypes(subject: Subject) -> Outcome:
    """Every element type is exported as itself, or refused."""
    if not subject.any_dtype:
        return _own_dtype(subject)
    given, outcomes, fit = [], [], values_fit(subject)
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
        elif subject.says_dtype(array) not in (None, name):
            # The framework made elements of another type.
            continue
        elif answer.dtype != triple:
            outcomes.append(failed(f"{name} is exported as {elements.name_of(answer.dtype)}"))
        elif answer.in_bytes or not answer.tensor.data:
            continue
        elif fit and _holds_others(subject, array, name, answer):
            outcomes.append(failed(f"{name} has wrong values: {answer.values()[:3]}"))
        else:
            given.append(name)
    worst = combine(passed(), *outcomes)
    if worst.verdict is Verdict.PASS:
        return passed(f"{len(given)} types: {', '.join(given)}")
    return worst


def _holds_others(subject: Subject, array: Array, name: str, export: Export) -> bool:
    try:
        return export.values() != subject.expected(array, name)
    except NotApplicable:
        return False


def values_fit(subject: Subject) -> bool:
    """Whether the default array holds the right numbers: the condition to judge other arrays."""
    array = subject.array()
    return not _holds_others(subject, array, "float32", best(array))


def _own_dtype(subject: Subject) -> Outcome:
    array = subject.array()
    said = subject.says_dtype(array)
    if said is None:
        raise NotApplicable("its arrays have one element type, and no dtype attribute")
    export = best(array)
    text = f"{said} is exported as {elements.name_of(export.dtype)}"
    return passed(said) if export.dtype == elements.DTYPES[said] else failed(text)


@check(
    "producer.alignment",
    "DLPack 1.3, DLTensor.data: aligned (the note says not to rely on 256 bytes)",
)
def alignment(subject: Subject) -> Outcome:
    """Elements lie on multiples of their size."""
    outcomes = [_alignment(subject.array())]
    # Wider elements, where an allocator may have too little for them.
    for dtype in (name for name, (_, bits, _) in elements.DTYPES.items() if bits > 32):
        with contextlib.suppress(NotApplicable):
            outcomes.append(_alignment(subject.array(dtype=dtype)))
    return combine(*outcomes)


def _alignment(array: Array) -> Outcome:
    export = best(array)
    # A complex number is two.
    parts = 2 if export.dtype[0] == abi.COMPLEX else 1
    size = max(1, export.dtype[1] // 8 // parts)
    boundary = max(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if export.pointer % n == 0)
    text = f"on {boundary} bytes" + ("" if boundary < 256 else " or more")
    return passed(text) if export.pointer % size == 0 else failed(f"{size}-byte elements {text}")


@check("producer.flags", "DLPack 1.3, DLManagedTensorVersioned.flags: 0 by default")
def flags(subject: Subject) -> Outcome:
    """A fresh array carries no flag that it has no reason for."""
    array = subject.array()
    export = versioned(array)
    unknown = export.flags & ~(abi.READ_ONLY | abi.IS_COPIED | abi.SUBBYTE_PADDED)
    if unknown:
        return failed(f"unknown bits {unknown:#x}")
    if export.flags & abi.SUBBYTE_PADDED and export.dtype[1] >= 8:
        return failed("padded sub-byte elements, but the elements have whole bytes")
    return passed(f"{export.flags}")


@check(
    "producer.copied-alias",
    "DLPack 1.3, IS_COPIED: solely owned by the consumer until the deleter is called",
)
def copied_alias(subject: Subject) -> Outcome:
    """IS_COPIED is set only for memory that is the consumer's alone."""
    array = subject.array()
    asked: list[dict[str, Any]] = [{}, {"copy": True}]
    versioned(array)
    for keywords in asked:
        one, other = (attempt(array, max_version=(1, 3), **keywords) for _ in range(2))
        if isinstance(one, Exception) or isinstance(other, Exception) or not one.tensor.data:
            continue
        if one.flags & other.flags & abi.IS_COPIED and one.pointer == other.pointer:
            return failed("two exports of one address, both flagged as copies")
    return passed()
