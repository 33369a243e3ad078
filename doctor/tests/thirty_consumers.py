"""Fifteen consumers that break one clause of the standard each, written before the checks for them.

Tests import this; it holds none. Every row names the clause by words that its check must cite.
"""

from __future__ import annotations

import contextlib

from dlpack_doctor import abi, elements
from planted import Consumer, Taken, seen

CONSUMERS = {}
"""Each class, and the clause that it breaks."""


def breaks(*clause):
    """Enter a class into the table."""

    def enter(program):
        CONSUMERS[program] = clause
        return program

    return enter


class Keywords(Consumer):
    """A consumer without a fault that has the keywords of the array API."""

    def __call__(self, x, /, *, device=None, copy=None):
        return self.imported(x, {"dl_device": device, "copy": copy})

    def imported(self, x, wanted):
        keywords = {name: value for name, value in wanted.items() if value is not None}
        export = seen(self.answer(x, keywords))
        self.check(export)
        return self.make(export)

    def answer(self, x, keywords):
        try:
            return x.__dlpack__(max_version=(1, 3), **keywords)
        except TypeError:
            if keywords.get("copy"):
                raise BufferError("the producer cannot copy") from None
            return x.__dlpack__()


def reads(change):
    """A consumer whose arrays differ from the tensor by `change`."""

    class Changed(Taken):
        def __init__(self, export, take):
            super().__init__(export, take)
            change(self, export)

    def make(self, export):
        return Changed(export, self.take)

    return make


@breaks("DLTensor.ndim")
class OnlyThirtyTwoAxes(Consumer):
    """Axes after the thirty-second are left out without an error."""

    @reads
    def make(array, export):
        array.shape, array.strides = array.shape[:32], array.strides[:32]


@breaks("DLTensor.shape")
class ExtentsOf32Bits(Consumer):
    """An extent of 2^32 and more loses its upper half."""

    @reads
    def make(array, export):
        array.shape = tuple(extent & 0xFFFFFFFF for extent in array.shape)


@breaks("DLTensor.byte_offset")
class NoOffsetWithStrides(Consumer):
    """The byte offset is left out for tensors with gaps."""

    @reads
    def make(array, export):
        if array.strides != elements.row_major(array.shape):
            array.pointer -= array.offset


@breaks("DLTensor.byte_offset")
class OffsetOf32Bits(Consumer):
    """A byte offset of 2^32 and more loses its upper half."""

    @reads
    def make(array, export):
        array.pointer -= array.offset & ~0xFFFFFFFF


@breaks("from_dlpack: must propagate")
class SwallowsBufferErrors(Consumer):
    """The BufferError of a producer becomes None."""

    def __call__(self, x):
        export = None
        with contextlib.suppress(BufferError):
            export = seen(self.ask(x))
        if export is None:
            return None
        self.check(export)
        return self.make(export)


@breaks("BufferError", "refused")
class RefusesByNone(Consumer):
    """A tensor that it cannot hold becomes None, not an error."""

    def __call__(self, x):
        export = seen(self.ask(x))
        try:
            self.check(export)
        except BufferError:
            export.take().release()
            return None
        return self.make(export)


@breaks("the capsule's destructor, or else the consumer")
class LeaksUnknownTypes(Consumer):
    """A tensor of an unknown element type is consumed, refused and never released."""

    def check(self, export):
        if export.dtype not in elements.NAMES:
            export.take()
        super().check(export)


@breaks("the capsule's destructor, or else the consumer")
class LeaksOtherMajors(Consumer):
    """A tensor of another major version is consumed, refused and never released."""

    def check(self, export):
        if export.version and export.version[0] != 1:
            export.take()
        super().check(export)


@breaks("the capsule's destructor, or else the consumer")
class ReleasesNegativeStridesTwice(Consumer):
    """A tensor with a negative stride is refused, and released by its capsule as well."""

    def check(self, export):
        super().check(export)
        if min(export.strides or (0,)) < 0:
            if export.raw.deleter:
                abi.Deleter(export.raw.deleter)(export.address)
            raise BufferError("negative strides")


@breaks("from_dlpack, copy")
class ForgetsCopyFalse(Keywords):
    """copy=False is not passed on, and the producer copies."""

    def answer(self, x, keywords):
        keywords = {k: v for k, v in keywords.items() if v is not False}
        return super().answer(x, keywords)


@breaks("from_dlpack, copy")
class AliasOfOlderProducers(Keywords):
    """copy=True of a producer without the keyword is an alias."""

    def answer(self, x, keywords):
        try:
            return x.__dlpack__(max_version=(1, 3), **keywords)
        except TypeError:
            return x.__dlpack__()


@breaks("__dlpack__")
class DeviceByTheWrongName(Keywords):
    """The device is passed to the producer as `device`."""

    def imported(self, x, wanted):
        wanted["device"] = wanted.pop("dl_device")
        return super().imported(x, wanted)


@breaks("READ_ONLY", "read-only")
class ReadOnlyAlone(Consumer):
    """A read-only tensor is known as such only if no other flag is set."""

    def make(self, export):
        array = super().make(export)
        array.readonly = export.flags == abi.READ_ONLY
        return array


@breaks("DLTensor.strides")
class RowsOrColumns(Consumer):
    """What is not row-major is taken for column-major."""

    @reads
    def make(array, export):
        odd = array.strides != elements.row_major(array.shape)
        if odd and len(array.shape) > 2 and min(array.strides) > 0:
            array.strides = elements.row_major(array.shape[::-1])[::-1]


@breaks("DLTensor.strides")
class OneNegativeAxis(Consumer):
    """Of two negative strides the second is read forwards."""

    @reads
    def make(array, export):
        first = True
        strides = list(array.strides)
        for axis, step in enumerate(strides):
            if step < 0 and not first:
                array.pointer += step * (array.shape[axis] - 1) * _size(array)
                strides[axis] = -step
            first = first and step >= 0
        array.strides = tuple(strides)


def _size(array):
    return elements.DTYPES[array.dtype][1] // 8
