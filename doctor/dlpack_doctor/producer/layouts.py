"""Arrays that are empty, have no axes, or are views."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dlpack_doctor import abi
from dlpack_doctor.export import best
from dlpack_doctor.producer.descriptor import null_strides, values_fit
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Array, Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, failed, passed, warned

# What each view of 0 1 2 / 3 4 5 holds.
EXPECTED: dict[str, tuple[tuple[int, ...], list[float]]] = {
    "offset": ((3,), [3, 4, 5]),
    "every second": ((2, 2), [0, 2, 3, 5]),
    "transposed": ((3, 2), [0, 3, 1, 4, 2, 5]),
    "reversed": ((2, 3), [2, 1, 0, 5, 4, 3]),
    "broadcast": ((2, 3), [0, 1, 2, 0, 1, 2]),
}


@check(
    "producer.rank-0",
    "an array without axes is one element",
    clause="DLPack 1.3, DLTensor.ndim: 0; shape and strides may be NULL",
)
def rank_0(subject: Subject) -> Outcome:
    array = subject.array(())
    export = best(array)
    if export.ndim != 0:
        return failed(f"ndim is {export.ndim}")
    found, expected = export.values(), subject.expected(array)
    good = found == expected or not values_fit(subject)
    return passed() if good else failed(f"holds {found}, not {expected}")


def _empty(subject: Subject) -> Array:
    return subject.array((0, 3) if len(subject.shape) == 2 else (0,))


@check(
    "producer.empty",
    "an array of size zero keeps its shape, and has strides",
    clause="DLPack 1.3, DLTensor.shape and .strides",
)
def empty(subject: Subject) -> Outcome:
    array = _empty(subject)
    shape, export = (0, 3) if len(subject.shape) == 2 else (0,), best(array)
    if export.shape != shape:
        return failed(f"shape {export.shape}, not {shape}")
    return null_strides(export) if export.strides is None else passed(f"strides {export.strides}")


@check(
    "producer.empty-data",
    "data is NULL in an array of size zero",
    clause="DLPack 1.3, DLTensor.data: should be NULL if the tensor is of size zero",
)
def empty_data(subject: Subject) -> Outcome:
    array = _empty(subject)
    export = best(array)
    return warned("data is not NULL") if export.tensor.data else passed()


def _view(subject: Subject, name: str) -> Outcome:
    array = subject.view(name)
    export = best(array)
    shape, numbers = EXPECTED[name]
    if export.shape != shape:
        return failed(f"shape {export.shape}, not {shape}")
    if export.ndim and export.strides is None and not _is_contiguous(name):
        return failed("strides are NULL, but the array is not contiguous")
    found = export.values()
    if found != numbers:
        return failed(f"holds {found}, not {numbers}")
    return passed(f"strides {export.strides}")


def _is_contiguous(name: str) -> bool:
    return name == "offset"


def _register(name: str, what: str) -> None:
    @check(
        f"producer.view-{name.replace(' ', '-')}",
        f"a view {what} has the right numbers",
        clause="DLPack 1.3, DLTensor: data, byte_offset and strides",
    )
    def view(subject: Subject) -> Outcome:
        return _view(subject, name)


_register("offset", "of the second row")
_register("every second", "of every second column")
_register("transposed", "with its axes exchanged")
_register("reversed", "with negative strides")
_register("broadcast", "with a stride of zero")


@check(
    "producer.byte-offset",
    "arrays and views begin at `data`, with a byte offset of 0",
    clause="DLPack 1.3, DLTensor.byte_offset: allowed; several consumers ignore it",
)
def byte_offset(subject: Subject) -> Outcome:
    for name, array in _arrays(subject):
        export = best(array)
        if export.device[0] not in abi.HOST_DEVICES:
            raise NotApplicable(f"device type {export.device[0]}")
        if export.tensor.byte_offset:
            return warned(f"byte_offset is {export.tensor.byte_offset} in {name}")
    return passed()


def _arrays(subject: Subject) -> Iterator[tuple[str, Array]]:
    """A fresh array, and every view that can be made."""
    yield "a fresh array", subject.array()
    for name in subject.views:
        with contextlib.suppress(NotApplicable):
            yield f"a view ({name})", subject.view(name)


@check(
    "producer.refusal",
    "arrays that DLPack cannot describe are refused with BufferError",
    clause="array API 2022.12, __dlpack__: BufferError when the data cannot be exported",
)
def refusal(subject: Subject) -> Outcome:
    from dlpack_doctor.producer.odd import each

    return each(subject)
