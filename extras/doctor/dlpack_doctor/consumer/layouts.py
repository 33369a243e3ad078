"""Legal tensors of every layout: imported with the right numbers, or refused by an exception."""

from __future__ import annotations

from typing import Any

from dlpack_doctor import elements
from dlpack_doctor.consumer.offer import SAME_MEMORY, Offer, judge, judge_each
from dlpack_doctor.export import best
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Shape, Subject, shape_of
from dlpack_doctor.verdict import NotApplicable, Outcome, Verdict, combine, failed, passed, warned

STRIDES = "DLPack 1.3, DLTensor.strides: any number of elements"


def _strided(shape: Shape, strides: Shape, offset: int = 0) -> dict[str, Any]:
    return {"shape": shape, "strides": strides, "offset": offset}


# The fields of tensors; consumers of rows get those of one axis.
LAYOUTS: dict[str, list[dict[str, Any]]] = {
    "transposed": [_strided((2, 3), (1, 2)), _strided((2, 3, 2), (1, 4, 2))],
    "gaps": [_strided((2, 3), (8, 2)), _strided((6,), (2,))],
    # The third is a row that was flipped and transposed, which CuPy 14 exported wrongly.
    "negative": [
        _strided((2, 3), (3, -1), 2),
        _strided((2, 3), (-3, -1), 5),
        _strided((3, 2), (-1, 3), 2),
        _strided((6,), (-1,), 5),
    ],
    "zero": [_strided((2, 3), (0, 1)), _strided((6,), (0,))],
    "size-1": [_strided((2, 1, 3), (3, 77, 1)), _strided((1,), (77,))],
    "many-axes": [{"shape": shape} for shape in elements.shapes() if len(shape) > 1],
    "0-d": [_strided((), ())],
    "0-d-null": [{"shape": None, "strides": None}],
    "empty": [{"shape": (0, 3), "null_data": True}, {"shape": (0,), "null_data": True}],
}


def _fields(subject: Subject, name: str) -> list[dict[str, Any]]:
    rows = len(subject.shape) == 1
    fields = [one for one in LAYOUTS[name] if (len(one["shape"] or ()) == 1) is rows]
    if not fields:
        raise NotApplicable("its arrays have one axis")
    return fields


def _register(name: str, what: str, clause: str = STRIDES) -> None:
    @check(f"consumer.{name}", clause, f"{what} has the right numbers.")
    def layout(subject: Subject) -> Outcome:
        return combine(*(judge(subject, **one) for one in _fields(subject, name)))


_register("transposed", "A tensor with permuted strides")
_register("gaps", "A tensor with gaps between its elements")
_register("negative", "A tensor with a negative stride")
_register("zero", "A tensor with a stride of zero")
_register("size-1", "A tensor with an odd stride along an axis of one element")
_register("many-axes", "A tensor of up to 33 axes", "DLPack 1.3, DLTensor.ndim: any number")
_register("0-d", "A tensor without axes", "DLPack 1.3, DLTensor.ndim: may be 0")
_register(
    "0-d-null",
    "A tensor without axes whose shape and strides are NULL",
    "DLPack 1.3, DLTensor.shape and .strides: may be NULL when ndim is 0",
)
_register(
    "empty",
    "A tensor of size zero whose data is NULL",
    "DLPack 1.3, DLTensor.data: should be NULL if the tensor is of size zero",
)


@check("consumer.null-strides", "DLPack 1.3, DLTensor.strides: before 1.2 NULL means contiguous")
def null_strides(subject: Subject) -> Outcome:
    """NULL strides of an older producer stand for a contiguous tensor."""
    # Each is offered where it is imported at all; `consumer.old-answer` judges that.
    forms: list[dict[str, Any]] = [{"legacy": True}, {"legacy": False, "version": (1, 0)}]
    takes = [form for form in forms if not judge(subject, **form).evidence.startswith("refused")]
    if not takes:
        raise NotApplicable("imports neither ABI")
    return combine(*(judge(subject, strides=None, **form) for form in takes))


@check("consumer.byte-offset", "DLPack 1.3, DLTensor.byte_offset: where the data begins")
def byte_offset(subject: Subject) -> Outcome:
    """A byte offset is added to data."""
    # With strides too, where those are read rightly without an offset.
    strided = [*LAYOUTS["gaps"], LAYOUTS["transposed"][0]]
    good = [one for one in strided if judge(subject, **one).verdict is Verdict.PASS]
    forms: list[dict[str, Any]] = [{}, *good]
    outcome = judge_each(subject, *(one | {"byte_offset": 64, "offset": 16} for one in forms))
    if outcome.verdict is not Verdict.PASS:
        return outcome
    # Its data lies far before the memory, where no consumer may read.
    return judge(subject, byte_offset=(1 << 33) + 64, offset=16)


@check("consumer.large-extents", "DLPack 1.3, DLTensor.shape: int64_t")
def large_extents(subject: Subject) -> Outcome:
    """Extents over 32 bits are kept."""
    if len(subject.shape) == 1:
        raise NotApplicable("its arrays have one axis")
    forms: list[dict[str, Any]] = [{"shape": elements.BEYOND, "null_data": True}]
    # A consumer that copies would need the memory of all elements.
    if judge(subject, **LAYOUTS["zero"][0]).evidence == SAME_MEMORY:
        forms.append(_strided((elements.BEYOND[1], 2), (0, 1)))
    refusals = []
    for form in forms:
        offer = Offer(subject, **form)
        if offer.refused:
            refusals.append(offer.refusal)
            continue
        found = shape_of(offer.array) or best(offer.array).shape
        if found != form["shape"]:
            return failed(f"{form['shape']} becomes {found}")
    return warned(f"refused: {refusals[0]}") if len(refusals) == len(forms) else passed()


@check("consumer.unaligned", "DLPack 1.3, DLTensor.data, note: do not rely on the alignment")
def unaligned(subject: Subject) -> Outcome:
    """Data that is aligned to its elements only has the right numbers."""
    return judge(subject, skew=4)
