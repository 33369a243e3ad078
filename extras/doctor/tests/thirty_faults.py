"""Fifteen producers and fifteen consumers that break one clause of the standard each. They were
written before the checks for them.

Tests import this; it holds none. Every row names the clause by words that its check must cite.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading

from dlpack_doctor import abi, elements
from planted import IN_PYTHON, Array, Consumer, Memory, Taken, seen

PRODUCERS, CONSUMERS = {}, {}
"""Each class, and the clause that it breaks."""


def breaks(*clause):
    """Enter a class into its table."""

    def enter(program):
        (CONSUMERS if issubclass(program, Consumer) else PRODUCERS)[program] = clause
        return program

    return enter


class Grid(Array):
    """An array without a fault whose views are made by indexing."""

    def __init__(self, shape=(2, 3), dtype="float32"):
        super().__init__(shape, dtype)
        self.strides, self.start = elements.row_major(shape), 0

    @property
    def itemsize(self):
        return elements.DTYPES[self.dtype][1] // 8

    @property
    def address(self):
        return self.memory.address + self.start * self.itemsize

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in index:
            at = index.index(Ellipsis)
            missing = len(self.shape) - len(index) + 1
            index = index[:at] + (slice(None),) * missing + index[at + 1 :]
        index += (slice(None),) * (len(self.shape) - len(index))
        shape, strides, start = [], [], self.start
        for step, extent, one in zip(self.strides, self.shape, index, strict=True):
            if isinstance(one, int):
                start += range(extent)[one] * step
                continue
            chosen = range(extent)[one]
            start += chosen.start * step if len(chosen) else 0
            shape.append(len(chosen))
            strides.append(step * chosen.step)
        return self.view(tuple(shape), tuple(strides), start)

    @property
    def T(self):
        return self.view(self.shape[::-1], self.strides[::-1], self.start)

    def view(self, shape, strides, start):
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.shape, made.strides, made.start = shape, strides, start
        return made

    def tolist(self):
        return elements.read(self.address, self.dtype, self.shape, self.strides)

    def export_as(self, versioned, copy=False):
        if copy:
            return self.packed().export_as_copy(versioned)
        return super().export_as(versioned)

    def packed(self):
        made = self.view(self.shape, elements.row_major(self.shape), 0)
        made.memory = Memory(elements.encode(self.dtype, self.tolist()))
        return made

    def export_as_copy(self, versioned):
        self.flags = abi.IS_COPIED
        return super().export_as(versioned)

    def describe(self, raw, versioned):
        raw.tensor.data = self.address if self.memory.size else None
        for axis, step in enumerate(self.strides):
            raw.tensor.strides[axis] = step
        self.spoil(raw, versioned)

    def spoil(self, raw, versioned):
        """Where one field becomes wrong."""


@breaks("DLTensor.strides")
class FourStrides(Grid):
    """The fifth axis and those after it have no strides: the struct has room for four."""

    def spoil(self, raw, versioned):
        for axis in range(4, len(self.shape)):
            raw.tensor.strides[axis] = 0


@breaks("DLTensor.shape")
class ExtentsOf32Bits(Grid):
    """An extent of 2^32 and more loses its upper half, which no array without elements shows."""

    def spoil(self, raw, versioned):
        for axis, extent in enumerate(self.shape):
            raw.tensor.shape[axis] = extent & 0xFFFFFFFF


@breaks("DLTensor.strides")
class UnsignedStrides(Grid):
    """A negative stride is divided by the size of an element as an unsigned number."""

    def spoil(self, raw, versioned):
        for axis, step in enumerate(self.strides):
            if step < 0:
                raw.tensor.strides[axis] = (2**64 + step * self.itemsize) // self.itemsize


@breaks("DLTensor.byte_offset", "DLTensor.data")
class ViewsFromTheFirstElement(Grid):
    """A view begins where its array does."""

    def spoil(self, raw, versioned):
        if raw.tensor.data:
            raw.tensor.data = self.memory.address


@breaks("DLTensor.byte_offset")
class OffsetInElements(Grid):
    """A view says its offset in elements."""

    def spoil(self, raw, versioned):
        if self.start:
            raw.tensor.data, raw.tensor.byte_offset = self.memory.address, self.start


@breaks("DLTensor.byte_offset")
class OffsetTwice(Grid):
    """A view with gaps is at its first element already, and has the offset as well."""

    def spoil(self, raw, versioned):
        if self.start and self.strides != elements.row_major(self.shape):
            raw.tensor.byte_offset = self.start * self.itemsize


@breaks("destructor")
class LosesTheException(Grid):
    """The destructor runs Python code while an exception is in flight, which is lost."""

    def wrap(self, held, name):
        return abi.new_capsule(ctypes.addressof(held.raw), name, IN_PYTHON)


@breaks("until the deleter is called")
class CopyOfTheCapsule(Grid):
    """A copy is freed with its capsule, although a consumer has it."""

    def export_as_copy(self, versioned):
        self.owned = True
        return super().export_as_copy(versioned)

    def wrap(self, held, name):
        if getattr(self, "owned", False):
            _copies[ctypes.addressof(held.raw)] = (held, name)
            return abi.new_capsule(ctypes.addressof(held.raw), name, _FREES)
        return super().wrap(held, name)


_copies = {}


def _free(capsule):
    for name in (*abi.STRUCTS, *abi.USED.values()):
        address = abi.address_in(capsule, name)
        if address in _copies:
            held, _ = _copies.pop(address)
            held.memory.poison()
            if name in abi.STRUCTS:
                held.array.dropped(held)


_FREES = abi.Destructor(_free)


@breaks("copy: if False")
class CopiesViewsAnyway(Grid):
    """A view with gaps is copied, although copy=False forbids it."""

    def export_as(self, versioned, copy=False):
        if self.strides != elements.row_major(self.shape) and 1 not in self.shape:
            return self.packed().export_as_copy(versioned)
        return super().export_as(versioned, copy)


@breaks("copy: if True")
class CopyIgnoredWithADevice(Grid):
    """copy=True is not heeded where a device is named as well."""

    def __dlpack__(self, *, dl_device=None, copy=None, **keywords):
        copy = None if dl_device is not None else copy
        return super().__dlpack__(dl_device=dl_device, copy=copy, **keywords)


@breaks("dl_device")
class NoDeviceWithoutACopy(Grid):
    """Its own device is refused together with copy=False."""

    def __dlpack__(self, *, dl_device=None, copy=None, **keywords):
        if dl_device is not None and copy is False:
            raise BufferError("cannot move to a device without a copy")
        return super().__dlpack__(dl_device=dl_device, copy=copy, **keywords)


@breaks("READ_ONLY")
class FlagLostWithoutACopy(Grid):
    """A read-only array is exported as writable if copy=False is passed."""

    readonly = True

    def __dlpack__(self, *, copy=None, max_version=None, **keywords):
        if (max_version is None or max_version[0] < 1) and copy is not True:
            raise BufferError("read-only memory needs the versioned ABI")
        self.flags = 0 if copy is False else abi.READ_ONLY
        return super().__dlpack__(copy=copy, max_version=max_version, **keywords)


@breaks("until the deleter is called")
class OneShapeForAll(Grid):
    """All exports share one room for their shape: the next one overwrites it."""

    room = (ctypes.c_int64 * 64)()

    def spoil(self, raw, versioned):
        for axis, extent in enumerate(self.shape):
            self.room[axis] = extent
        raw.tensor.shape = ctypes.cast(self.room, type(raw.tensor.shape))


@breaks("DLDataType")
class BitsOfOnePart(Grid):
    """A complex number has the bits of its real part."""

    def spoil(self, raw, versioned):
        if self.dtype.startswith("complex"):
            raw.tensor.bits //= 2


@breaks("GIL")
class DeleterOfTheMainThread(Grid):
    """The deleter does nothing on other threads, so that their exports are never freed."""

    def deleted(self, held):
        if threading.current_thread() is not threading.main_thread():
            _immortal.append(held)


_immortal = []


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
class ReadsExtentsOf32Bits(Consumer):
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
