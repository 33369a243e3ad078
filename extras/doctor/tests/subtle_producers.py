"""Producers whose faults an earlier doctor missed, and the check that finds each.

Tests import this; it holds none.
"""

from __future__ import annotations

import ctypes

import planted
from dlpack_doctor import abi
from planted import DESTRUCTOR, Array, Memory


class _Orphan:
    """The owner of an export that keeps nothing alive."""

    def deleted(self, held):
        pass

    def dropped(self, held):
        Array.dropped(self, held)


class NeverKeepsItsMemory(Array):
    def wrap(self, held, name):
        if held.memory is self.memory:
            held.array, held.memory = _Orphan(), None
        return super().wrap(held, name)


class NeverKeepsItsCopies(Array):
    """The memory of a copy goes with the array, not with the deleter."""

    def wrap(self, held, name):
        if held.memory is not self.memory:
            self.copies = [*getattr(self, "copies", []), held.memory]
            held.array = _Orphan()
        return super().wrap(held, name)

    def __del__(self):
        for memory in getattr(self, "copies", []):
            memory.poison()


stale = []


class ShapeIsNotKept(Array):
    def export_as(self, versioned, copy=False):
        self.copying = copy
        return super().export_as(versioned, copy)

    def describe(self, raw, versioned):
        if self.copying:
            return
        sizes = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)
        self.sizes = [*getattr(self, "sizes", []), sizes][-8:]
        raw.tensor.shape = sizes

    def wrap(self, held, name):
        if not self.copying:
            held.array = _Orphan()
        return super().wrap(held, name)

    def __del__(self):
        for sizes in getattr(self, "sizes", []):
            ctypes.memset(sizes, 0x77, 8 * len(self.shape))
            stale.append(sizes)


class HandsOutOneCapsule(Array):
    def __dlpack__(self, *, max_version=None, dl_device=None, copy=None, stream=None):
        if copy or dl_device not in (None, (1, 0)) or stream is not None:
            return super().__dlpack__(
                max_version=max_version, dl_device=dl_device, copy=copy, stream=stream
            )
        versioned = max_version is not None and max_version[0] >= 1
        self.given = getattr(self, "given", {})
        if versioned not in self.given:
            self.given[versioned] = self.export_as(versioned)
        return self.given[versioned]

    def wrap(self, held, name):
        # The capsule keeps the memory alone: together with the array it would be a cycle.
        held.array = _Orphan()
        return super().wrap(held, name)


class ExportsOnce(Array):
    def export_as(self, versioned, copy=False):
        if getattr(self, "gone", False):
            raise BufferError("exported already")
        self.gone = True
        return super().export_as(versioned, copy)


class VersionedUnderTheLegacyName(Array):
    def export_as(self, versioned, copy=False):
        capsule = super().export_as(True, copy)
        if not versioned:
            address = abi.pointer_of(capsule, abi.VERSIONED)
            stale.append(capsule)
            capsule = abi.new_capsule(address, abi.LEGACY)
        return capsule


class LegacyUnderTheVersionedName(Array):
    def export_as(self, versioned, copy=False):
        capsule = super().export_as(False, copy)
        if versioned:
            address = abi.pointer_of(capsule, abi.LEGACY)
            stale.append(capsule)
            capsule = abi.new_capsule(address, abi.VERSIONED)
        return capsule


class ReadOnlyByItsAttribute(Array):
    readonly = True

    def __dlpack__(self, *, max_version=None, **keywords):
        if max_version is None or max_version < (1, 0):
            raise BufferError("read-only")
        return super().__dlpack__(max_version=max_version, **keywords)


class ReadOnlyByItsInterface(ReadOnlyByItsAttribute):
    readonly = None

    @property
    def __array_interface__(self):
        return {"data": (self.memory.address, True)}


class LegacyOfReadOnlyForOldConsumers(Array):
    flags = abi.READ_ONLY
    readonly = True

    def __dlpack__(self, *, max_version=None, **keywords):
        if max_version is None:
            raise BufferError("read-only")
        return super().__dlpack__(max_version=max_version, **keywords)


class NewerMajorForNewerConsumers(Array):
    def __dlpack__(self, *, max_version=None, **keywords):
        self.newer = max_version == (2, 0)
        return super().__dlpack__(max_version=max_version, **keywords)

    def describe(self, raw, versioned):
        if versioned and self.newer:
            raw.major, raw.minor = 2, 0


class ShapeIsNull(Array):
    def describe(self, raw, versioned):
        raw.tensor.shape = None


class NegativeNdim(Array):
    def describe(self, raw, versioned):
        raw.tensor.ndim = -1


class NegativeExtent(Array):
    def describe(self, raw, versioned):
        if self.shape:
            raw.tensor.shape[0] = -1


class DataIsNull(Array):
    def describe(self, raw, versioned):
        raw.tensor.data = None


class StridesInBytes(Array):
    def describe(self, raw, versioned):
        for axis in range(len(self.shape)):
            raw.tensor.strides[axis] *= raw.tensor.bits // 8


class BytesForBits(Array):
    def describe(self, raw, versioned):
        raw.tensor.bits //= 8


class NoLanes(Array):
    def describe(self, raw, versioned):
        raw.tensor.lanes = 0


class LegacyOfAnotherType(Array):
    def describe(self, raw, versioned):
        if not versioned:
            raw.tensor.code = 0 if raw.tensor.code == 2 else raw.tensor.code


class LegacyWithOtherStrides(Array):
    def describe(self, raw, versioned):
        if not versioned and self.shape == (2, 3):
            raw.tensor.strides[0], raw.tensor.strides[1] = 1, 2


class LegacyAtAnotherAddress(Array):
    def describe(self, raw, versioned):
        if not versioned and raw.tensor.data:
            raw.tensor.data = Zeros.address


Zeros = Memory(bytes(256))


class WrongNumbersOfOneType(Array):
    def tolist(self):
        found = super().tolist()
        return [number + 1 for number in found] if self.dtype == "int16" else found


class DeviceAsAList(Array):
    def __dlpack_device__(self):
        return [1, 0]


class CopyOfAnotherShape(Array):
    def __dlpack__(self, *, copy=None, max_version=None, **keywords):
        self.flat = copy is True and max_version is not None
        return super().__dlpack__(copy=copy, max_version=max_version, **keywords)

    def describe(self, raw, versioned):
        if self.flat and self.shape == (2, 3):
            raw.tensor.ndim = 1
            raw.tensor.shape[0], raw.tensor.strides[0] = 6, 1


class CopiedFlagWithoutACopy(Array):
    def __dlpack__(self, *, copy=None, **keywords):
        self.flags = abi.IS_COPIED if copy is False else 0
        return super().__dlpack__(copy=copy, **keywords)


class LeaksADescriptorEachTime(Array):
    def deleted(self, held):
        libc.malloc(128)
        ctypes.memset(libc.malloc(128), 1, 128)


libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p


class LeaksWhatItRefuses(Array):
    def __dlpack__(self, *, dl_device=None, **keywords):
        if dl_device not in (None, (1, 0)):
            stale.append(self)
        return super().__dlpack__(dl_device=dl_device, **keywords)


class CountsOneDescriptor(Array):
    """Not a fault: every capsule holds one managed tensor, whose deleter counts."""

    def export_as(self, versioned, copy=False):
        self.copying = copy
        return super().export_as(versioned, copy)

    def wrap(self, held, name):
        if self.copying:
            return super().wrap(held, name)
        self.first = getattr(self, "first", {})
        kept = self.first.setdefault(name, held)
        if kept is not held:
            planted._living.pop(ctypes.addressof(held.raw))
            planted._living[ctypes.addressof(kept.raw)] = kept
        held.array = _Orphan()
        return abi.new_capsule(ctypes.addressof(kept.raw), name, DESTRUCTOR)


class IgnoresTheShape(Array):
    def __init__(self, shape=(2, 3), dtype="float32"):
        super().__init__((6,) if shape == (2, 3) else shape, dtype)


class RaisesWhenMade(Array):
    def __init__(self, shape=(2, 3), dtype="float32"):
        raise RuntimeError("no memory left")


def takes_three_arguments(shape, dtype, order):
    return Array(shape, dtype)


def returns_nothing(shape, dtype):
    return None


def returns_a_list(shape, dtype):
    return [0.0, 1.0, 2.0]


FAULTS = {
    NeverKeepsItsMemory: "owner-kept",
    NeverKeepsItsCopies: "copy-kept",
    ShapeIsNotKept: "owner-kept",
    HandsOutOneCapsule: "fresh-capsule",
    ExportsOnce: "fresh-capsule",
    VersionedUnderTheLegacyName: "capsule-name",
    LegacyUnderTheVersionedName: "capsule-name",
    ReadOnlyByItsAttribute: "read-only",
    ReadOnlyByItsInterface: "read-only",
    LegacyOfReadOnlyForOldConsumers: "read-only-old",
    NewerMajorForNewerConsumers: "version-1",
    ShapeIsNull: "shape",
    NegativeNdim: "shape",
    NegativeExtent: "shape",
    DataIsNull: "values",
    StridesInBytes: "strides",
    BytesForBits: "dtypes",
    NoLanes: "dtypes",
    LegacyOfAnotherType: "abis-agree",
    LegacyWithOtherStrides: "abis-agree",
    LegacyAtAnotherAddress: "abis-agree",
    WrongNumbersOfOneType: "dtypes",
    DeviceAsAList: "device",
    CopyOfAnotherShape: "copy-true",
    CopiedFlagWithoutACopy: "copy-false",
    LeaksADescriptorEachTime: "small-leak",
    LeaksWhatItRefuses: "refusal-leak",
    IgnoresTheShape: "factory",
    RaisesWhenMade: "factory",
    takes_three_arguments: "factory",
    returns_nothing: "factory",
    returns_a_list: "methods",
}
