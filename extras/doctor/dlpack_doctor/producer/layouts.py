"""Arrays that are empty, have no axes, or are views."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dlpack_doctor import abi, elements
from dlpack_doctor.export import best
from dlpack_doctor.producer.descriptor import null_strides, values_fit
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Array, Shape, Subject, shape_of
from dlpack_doctor.verdict import Malformed, NotApplicable, Outcome, failed, passed, warned

# The shape and the strides of each view of 0 1 2 / 3 4 5, and what it holds.
EXPECTED: dict[str, tuple[Shape, Shape, list[float]]] = {
    "offset": ((3,), (1,), [3, 4, 5]),
    "corner": ((1, 2), (3, 1), [4, 5]),
    "every second": ((2, 2), (3, 2), [0, 2, 3, 5]),
    "transposed": ((3, 2), (1, 3), [0, 3, 1, 4, 2, 5]),
    "reversed": ((2, 3), (3, -1), [2, 1, 0, 5, 4, 3]),
    "flipped": ((3, 2), (-1, 3), [2, 5, 1, 4, 0, 3]),
    "broadcast": ((2, 3), (0, 1), [0, 1, 2, 0, 1, 2]),
}


FRESH = "a fresh array"


class BeginsElsewhere(NotApplicable):
    """A view whose shape and strides are right, and its first element is not."""


@check("producer.0-d", "DLPack 1.3, DLTensor.ndim: 0; shape and strides may be NULL")
def ndim_0(subject: Subject) -> Outcome:
    """An array without axes is one element."""
    array = subject.array(())
    export = best(array)
    if export.ndim != 0:
        return failed(f"ndim is {export.ndim}")
    found, expected = export.values(), subject.expected(array)
    good = found == expected or not values_fit(subject)
    return passed() if good else failed(f"holds {found}, not {expected}")


def _empty(subject: Subject) -> Array:
    return subject.array((0, 3) if len(subject.shape) == 2 else (0,))


@check("producer.empty", "DLPack 1.3, DLTensor.shape and .strides")
def empty(subject: Subject) -> Outcome:
    """An array of size zero keeps its shape, and has strides."""
    array = _empty(subject)
    shape, export = (0, 3) if len(subject.shape) == 2 else (0,), best(array)
    if export.shape != shape:
        return failed(f"shape {export.shape}, not {shape}")
    return null_strides(export) if export.strides is None else passed(f"strides {export.strides}")


@check(
    "producer.empty-data", "DLPack 1.3, DLTensor.data: should be NULL if the tensor is of size zero"
)
def empty_data(subject: Subject) -> Outcome:
    """Data is NULL in an array of size zero."""
    array = _empty(subject)
    export = best(array)
    return warned("data is not NULL") if export.tensor.data else passed()


@check("producer.torch-asarray", "not in the standard; PyTorch issue 188784")
def torch_asarray(subject: Subject) -> Outcome:
    """torch.asarray keeps the axes of an array with a buffer."""
    array = subject.array()
    if type(array).__module__.split(".")[0] in ("numpy", "torch"):
        raise NotApplicable("PyTorch knows the type")
    try:
        ndim = memoryview(array).ndim
    except (TypeError, ValueError, BufferError):
        return passed("it has no buffer")
    if ndim < 2:
        return passed(f"a buffer of {ndim} axes")
    return warned("torch.asarray(x) has one axis; use torch.as_tensor(x)")


def _view(subject: Subject, name: str) -> Outcome:
    array = subject.view(name)
    export = best(array)
    shape, strides, numbers = EXPECTED[name]
    if not subject.known:
        shape, numbers = shape_of(array) or shape, subject.expected(array)
    if export.shape != shape:
        return failed(f"shape {export.shape}, not {shape}")
    if export.strides is None and elements.row_major(shape) != strides:
        return failed("strides are NULL, but the array is not contiguous")
    try:
        found = export.values()
    except Malformed as error:
        return failed(str(error))
    if found == numbers:
        return passed(f"strides {export.strides}")
    if export.strides in (None, strides):
        raise BeginsElsewhere(f"{name}: holds {found}, not {numbers}")
    return failed(f"strides {export.strides}: holds {found}, not {numbers}")


def _register(name: str, what: str) -> None:
    @check(
        f"producer.view-{name.replace(' ', '-')}",
        "DLPack 1.3, DLTensor.strides: int64_t, in elements",
        f"A view {what} has the right strides.",
    )
    def view(subject: Subject) -> Outcome:
        return _view(subject, name)


_register("every second", "of every second column")
_register("transposed", "with its axes exchanged")
_register("reversed", "with a negative stride")
_register("flipped", "with a negative stride and its axes exchanged")
_register("broadcast", "with a stride of zero")


@check(
    "producer.view-offset",
    "DLPack 1.3, DLTensor.data and DLTensor.byte_offset: in bytes, added once",
)
def view_offset(subject: Subject) -> Outcome:
    """A view begins at its own first element."""
    if not subject.views:
        raise NotApplicable("it has no views, or the doctor does not know them")
    outcomes = []
    for name in subject.views:
        try:
            outcomes.append(_view(subject, name))
        except BeginsElsewhere as error:
            return failed(str(error))
        except NotApplicable:
            continue
    if not outcomes:
        raise NotApplicable("cannot make one")
    return passed(f"{len(outcomes)} views")


@check(
    "producer.shapes",
    "DLPack 1.3, DLTensor.shape and DLTensor.strides: ndim numbers of 64 bits each",
)
def shapes(subject: Subject) -> Outcome:
    """Arrays of 1 to 33 axes, and extents over 32 bits, are described axis by axis."""
    first = best(subject.array())
    if first.shape != subject.shape or not first.values() or not values_fit(subject):
        raise NotApplicable("its first array is described wrongly already")
    seen = set()
    for shape in (*elements.shapes(), elements.BEYOND):
        try:
            # Where the shape of every empty array is wrong, its size is not the cause.
            empty = shape == elements.BEYOND and best(subject.array((0, 3))).shape != (0, 3)
            array = subject.array(shape)
            export = best(array)
        except NotApplicable:
            continue
        if empty or shape_of(array) not in (None, shape):
            continue
        try:
            if export.shape != shape:
                return failed(f"{export.shape} for an array of shape {shape}")
            if 0 not in shape and export.values() != subject.expected(array, shape=shape):
                return failed(f"strides {export.strides} for an array of shape {shape}")
        except Malformed as error:
            return failed(f"{error}, for an array of shape {shape}")
        seen.add(len(shape))
    if not seen:
        raise NotApplicable("has none of these shapes")
    return passed(f"up to {max(seen)} axes")


@check(
    "producer.byte-offset", "DLPack 1.3, DLTensor.byte_offset: allowed; several consumers ignore it"
)
def byte_offset(subject: Subject) -> Outcome:
    """Arrays and views begin at `data`, with a byte offset of 0."""
    for name, array in arrays(subject):
        export = best(array)
        if export.device[0] not in abi.HOST_DEVICES:
            raise NotApplicable(f"device type {export.device[0]}")
        if export.tensor.byte_offset:
            return warned(f"byte_offset is {export.tensor.byte_offset} in {name}")
    return passed()


def arrays(subject: Subject) -> Iterator[tuple[str, Array]]:
    """A fresh array, and every view that can be made."""
    yield FRESH, subject.array()
    for name in subject.views:
        with contextlib.suppress(NotApplicable):
            yield f"a view ({name})", subject.view(name)
