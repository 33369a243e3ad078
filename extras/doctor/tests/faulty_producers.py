"""Producers with one fault each, or one surprise, and the check that is meant for it.

Tests import this; it holds none.
"""

from __future__ import annotations

import collections
import ctypes

from dlpack_doctor import abi
from planted import Array


class WithoutADevice(Array):
    __dlpack_device__ = None


class WithoutStream(Array):
    def __dlpack__(self, *, max_version=None, dl_device=None, copy=None):
        return super().__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)


class IdOfNone(Array):
    def __dlpack_device__(self):
        return (1, None)


class LyingDevice(Array):
    def __dlpack_device__(self):
        return (2, 0)


class HostWithAnId(Array):
    def __dlpack_device__(self):
        return (1, 3)

    def __dlpack__(self, *, dl_device=None, **keywords):
        dl_device = None if dl_device == (1, 3) else dl_device
        return super().__dlpack__(dl_device=dl_device, **keywords)

    def describe(self, raw, versioned):
        raw.tensor.device_id = 3


class FailsForOldConsumers(Array):
    def __dlpack__(self, *, max_version=None, **keywords):
        if max_version == (0, 8):
            raise AttributeError("no such thing")
        return super().__dlpack__(max_version=max_version, **keywords)


class FailsForNewerConsumers(Array):
    def __dlpack__(self, *, max_version=None, **keywords):
        if max_version == (2, 0):
            raise BufferError("too new")
        return super().__dlpack__(max_version=max_version, **keywords)


class FailsUnasked(Array):
    def __dlpack__(self, *, max_version=None, copy=None, **keywords):
        if max_version is None and copy is None:
            raise RuntimeError("ask for a version")
        return super().__dlpack__(max_version=max_version, copy=copy, **keywords)


class BadHeader(Array):
    def describe(self, raw, versioned):
        if versioned:
            raw.minor = 77


class WrongName(Array):
    def wrap(self, held, name):
        return super().wrap(held, b"tensor")


class WrongShape(Array):
    def describe(self, raw, versioned):
        if self.shape == (2, 3):
            raw.tensor.shape[0], raw.tensor.shape[1] = 3, 2
            raw.tensor.strides[0] = 2


class WrongNumbers(Array):
    def tolist(self):
        return [number + 1 for number in super().tolist()]


class NullStrides(Array):
    def describe(self, raw, versioned):
        if self.shape == (2, 3):
            raw.tensor.strides = None


class WrongElementType(Array):
    def describe(self, raw, versioned):
        if self.dtype == "uint16":
            raw.tensor.code = 4


class Unaligned(Array):
    skew = 1


class UnknownFlags(Array):
    flags = 1 << 40


class PaddedBytes(Array):
    flags = abi.SUBBYTE_PADDED


class CopiedAlias(Array):
    flags = abi.IS_COPIED


class ScalarWithAnAxis(Array):
    def describe(self, raw, versioned):
        if self.shape == ():
            raw.tensor.ndim = 1
            raw.tensor.shape[0] = 1


class EmptyOfAnotherShape(Array):
    def describe(self, raw, versioned):
        if 0 in self.shape:
            raw.tensor.shape[1] = 0


class ReadOnlyUnsaid(Array):
    flags = abi.READ_ONLY


class Leaking(Array):
    def wrap(self, held, name):
        return abi.new_capsule(ctypes.addressof(held.raw), name)


class LeakingDestructor(Array):
    def dropped(self, held):
        kept.append(held)


class DroppedTwice(Array):
    def dropped(self, held):
        super().dropped(held)
        super().dropped(held)


kept = []
recent = collections.deque(maxlen=256)


def _destroy_always(capsule):
    for name in (*abi.STRUCTS, *abi.USED.values()):
        address = abi.address_in(capsule, name)
        if address is not None:
            raw = next(held.raw for held in recent if ctypes.addressof(held.raw) == address)
            abi.Deleter(raw.deleter)(address)


DESTROY_ALWAYS = abi.Destructor(_destroy_always)


class DoubleDeleter(Array):
    """The capsule calls the deleter, consumed or not."""

    def wrap(self, held, name):
        # The descriptor and its memory stay, so that a second call is only counted.
        recent.append(held)
        array, held.array = held.array, _Nobody()
        assert array is self
        return abi.new_capsule(ctypes.addressof(held.raw), name, DESTROY_ALWAYS)


class _Nobody:
    def deleted(self, held):
        pass


class OwnerNotKept(Array):
    def wrap(self, held, name):
        held.array = _Releaser()
        return super().wrap(held, name)

    def __del__(self):
        self.memory.poison()


class _Releaser:
    def deleted(self, held):
        pass

    def dropped(self, held):
        Array.dropped(self, held)


class NeverReleased(Array):
    def deleted(self, held):
        kept.append(self)


class ExportsThatShareAnEnd(Array):
    def deleted(self, held):
        self.memory.poison()


class CopyIsAnAlias(Array):
    def wants_copy(self, copy, versioned):
        return copy is True and not versioned


class OldCopyIsAnAlias(Array):
    def wants_copy(self, copy, versioned):
        return copy is True and versioned


class CopyIsRefusedOddly(Array):
    def wants_copy(self, copy, versioned):
        if copy and versioned:
            raise RuntimeError("no copies here")
        return copy is True


class CopyWithoutAFlag(Array):
    def describe(self, raw, versioned):
        if versioned:
            raw.flags = 0


class CopiesThoughForbidden(Array):
    def wants_copy(self, copy, versioned):
        return copy is not None


class OwnDeviceRefused(Array):
    def __dlpack__(self, *, dl_device=None, **keywords):
        if dl_device == (1, 0):
            raise RuntimeError("no devices here")
        return super().__dlpack__(dl_device=dl_device, **keywords)


class OtherDeviceGranted(Array):
    def __dlpack__(self, *, dl_device=None, **keywords):
        return super().__dlpack__(**keywords)


class OtherDeviceRefusedOddly(Array):
    def __dlpack__(self, *, dl_device=None, **keywords):
        if dl_device not in (None, (1, 0)):
            raise NotImplementedError
        return super().__dlpack__(**keywords)


class StreamOfNoneRefused(Array):
    def __dlpack__(self, *, stream=7, **keywords):
        if stream is None:
            raise ValueError("a stream is needed")
        return super().__dlpack__(stream=None if stream == 7 else stream, **keywords)


FAULTS = {
    WithoutADevice: "methods",
    WithoutStream: "keywords",
    IdOfNone: "device",
    LyingDevice: "device-agrees",
    HostWithAnId: "host-id",
    FailsUnasked: "version-unasked",
    FailsForOldConsumers: "version-0.8",
    FailsForNewerConsumers: "version-1",
    BadHeader: "header",
    WrongName: "capsule-name",
    WrongShape: "shape",
    WrongNumbers: "values",
    NullStrides: "strides",
    WrongElementType: "dtypes",
    Unaligned: "alignment",
    UnknownFlags: "flags",
    PaddedBytes: "flags",
    CopiedAlias: "copied-alias",
    ScalarWithAnAxis: "0-d",
    EmptyOfAnotherShape: "empty",
    ReadOnlyUnsaid: "read-only-old",
    Leaking: "unconsumed",
    LeakingDestructor: "unconsumed",
    DroppedTwice: "unconsumed",
    DoubleDeleter: "consumed",
    OwnerNotKept: "owner-kept",
    NeverReleased: "released",
    ExportsThatShareAnEnd: "two-exports",
    CopyIsAnAlias: "copy-true",
    CopyIsRefusedOddly: "copy-true",
    CopyWithoutAFlag: "copied-flag",
    OldCopyIsAnAlias: "copy-true-old",
    CopiesThoughForbidden: "copy-false",
    OwnDeviceRefused: "own-device",
    OtherDeviceGranted: "other-device",
    OtherDeviceRefusedOddly: "other-device",
    StreamOfNoneRefused: "stream-none",
}


class PositionalArguments(Array):
    def __dlpack__(self, stream=None, **keywords):
        return super().__dlpack__(stream=stream, **keywords)


class VersionedUnasked(Array):
    def __dlpack__(self, *, max_version=None, **keywords):
        return super().__dlpack__(max_version=max_version or (1, 0), **keywords)


class OldWhateverIsAsked(Array):
    def __dlpack__(self, *, max_version=None, **keywords):
        return super().__dlpack__(**keywords)


class StreamOnly(Array):
    def __dlpack__(self, *, stream=None):
        return super().__dlpack__(stream=stream)


class NullStridesOfOldHeaders(Array):
    def describe(self, raw, versioned):
        if self.shape == (2, 3):
            raw.tensor.strides = None
        if versioned:
            raw.minor = 1


class WithoutADeleter(Array):
    def describe(self, raw, versioned):
        raw.deleter = None


class EmptyWithData(Array):
    def describe(self, raw, versioned):
        if 0 in self.shape:
            raw.tensor.data = self.memory.address


class Offset(Array):
    def describe(self, raw, versioned):
        if raw.tensor.data:
            raw.tensor.data -= 8
            raw.tensor.byte_offset = 8


class AnyStream(Array):
    def __dlpack__(self, *, stream=None, **keywords):
        return super().__dlpack__(**keywords)


class CopyRefused(Array):
    def wants_copy(self, copy, versioned):
        if copy:
            raise BufferError("no copies here")
        return False


class FreshMemoryEachTime(Array):
    def wants_copy(self, copy, versioned):
        return copy is not False

    def describe(self, raw, versioned):
        if versioned:
            raw.flags = abi.IS_COPIED


SURPRISES = {
    PositionalArguments: {"keyword-only"},
    VersionedUnasked: {"version-unasked"},
    OldWhateverIsAsked: {"version-1"},
    StreamOnly: {"keywords"},
    NullStridesOfOldHeaders: {"strides"},
    WithoutADeleter: {"deleter"},
    EmptyWithData: {"empty-data"},
    Offset: {"byte-offset"},
    AnyStream: {"stream-number"},
    CopyRefused: {"copy-true"},
}
