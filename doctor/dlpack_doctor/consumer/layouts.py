"""Legal tensors of every layout: imported with the right numbers, or refused by an exception."""

from __future__ import annotations

from typing import Any

from dlpack_doctor.consumer.offer import judge
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, combine

STRIDES = "DLPack 1.3, DLTensor.strides: any number of elements"

# The fields of the tensor: for consumers of any rank, and for those of rows.
LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "transposed": ({"shape": (2, 3), "strides": (1, 2)}, None),
    "gaps": ({"shape": (2, 3), "strides": (8, 2)}, {"shape": (6,), "strides": (2,)}),
    "negative": (
        {"shape": (2, 3), "strides": (3, -1), "offset": 2},
        {"shape": (6,), "strides": (-1,), "offset": 5},
    ),
    "zero": ({"shape": (2, 3), "strides": (0, 1)}, {"shape": (6,), "strides": (0,)}),
    "size-1": ({"shape": (2, 1, 3), "strides": (3, 77, 1)}, {"shape": (1,), "strides": (77,)}),
    "many-axes": ({"shape": (1, 2, 1, 1, 1, 3), "strides": (6, 3, 3, 3, 3, 1)}, None),
    "rank-0": ({"shape": (), "strides": ()}, None),
    "rank-0-null": ({"shape": None, "strides": None}, None),
    "empty": (
        {"shape": (0, 3), "null_data": True},
        {"shape": (0,), "null_data": True},
    ),
}


def _fields(subject: Subject, name: str) -> dict[str, Any]:
    grid, row = LAYOUTS[name]
    if len(subject.shape) != 1:
        return grid
    if row is None:
        raise NotApplicable("its arrays have one axis")
    return row


def _register(name: str, what: str, clause: str = STRIDES) -> None:
    @check(f"consumer.{name}", f"{what} has the right numbers", clause=clause)
    def layout(subject: Subject) -> Outcome:
        return judge(subject, **_fields(subject, name))


_register("transposed", "a tensor with permuted strides")
_register("gaps", "a tensor with gaps between its elements")
_register("negative", "a tensor with a negative stride")
_register("zero", "a tensor with a stride of zero")
_register("size-1", "a tensor with an odd stride along an axis of one element")
_register("many-axes", "a tensor of six axes", "DLPack 1.3, DLTensor.ndim: any number")
_register("rank-0", "a tensor without axes", "DLPack 1.3, DLTensor.ndim: may be 0")
_register(
    "rank-0-null",
    "a tensor without axes whose shape and strides are NULL",
    "DLPack 1.3, DLTensor.shape and .strides: may be NULL when ndim is 0",
)
_register(
    "empty",
    "a tensor of size zero whose data is NULL",
    "DLPack 1.3, DLTensor.data: should be NULL if the tensor is of size zero",
)


@check(
    "consumer.null-strides",
    "NULL strides of an older producer stand for a contiguous tensor",
    clause="DLPack 1.3, DLTensor.strides: before 1.2 NULL means contiguous",
)
def null_strides(subject: Subject) -> Outcome:
    # Each is offered where it is imported at all; `consumer.old-answer` judges that.
    forms: list[dict[str, Any]] = [{"legacy": True}, {"legacy": False, "version": (1, 0)}]
    takes = [form for form in forms if not judge(subject, **form).evidence.startswith("refused")]
    if not takes:
        raise NotApplicable("imports neither ABI")
    return combine(*(judge(subject, strides=None, **form) for form in takes))


@check(
    "consumer.byte-offset",
    "a byte offset is added to data",
    clause="DLPack 1.3, DLTensor.byte_offset: where the data begins",
)
def byte_offset(subject: Subject) -> Outcome:
    return judge(subject, byte_offset=64, offset=16)


@check(
    "consumer.unaligned",
    "data that is aligned to its elements only has the right numbers",
    clause="DLPack 1.3, DLTensor.data, note: do not rely on the alignment",
)
def unaligned(subject: Subject) -> Outcome:
    return judge(subject, skew=4)
