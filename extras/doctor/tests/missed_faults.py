"""Producers and consumers whose faults the doctor missed until they were planted here.

Each has the check that finds it. Tests import this; it holds none.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from typing import ClassVar

from dlpack_doctor import abi, elements
from planted import Consumer, Memory, Taken, seen
from thirty_faults import Grid


class DoublesOnFourBytes(Grid):
    """An allocator aligns to 4 bytes, which suffices for the type that most tests use."""

    def __init__(self, shape=(2, 3), dtype="float32"):
        self.skew = 4 if dtype in ("float64", "complex128") else 0
        super().__init__(shape, dtype)


class LegacyWithADevice(Grid):
    """A request for its own device leads to an older function, which knows no versions."""

    def __dlpack__(self, *, dl_device=None, max_version=None, **keywords):
        max_version = max_version if dl_device is None else None
        return super().__dlpack__(dl_device=dl_device, max_version=max_version, **keywords)


class CopiesLeakUnlessTaken(Grid):
    """The capsule of a copy has no destructor."""

    def export_as_copy(self, versioned):
        self.is_copy = True
        return super().export_as_copy(versioned)

    def wrap(self, held, name):
        if getattr(self, "is_copy", False):
            return abi.new_capsule(ctypes.addressof(held.raw), name)
        return super().wrap(held, name)


class LeaksWithADeviceUnlessTaken(Grid):
    """The capsule of an export for a named device has no destructor."""

    device_named = False

    def __dlpack__(self, *, dl_device=None, **keywords):
        self.device_named = dl_device is not None
        return super().__dlpack__(dl_device=dl_device, **keywords)

    def wrap(self, held, name):
        if self.device_named:
            return abi.new_capsule(ctypes.addressof(held.raw), name)
        return super().wrap(held, name)


class OneCopyForAll(Grid):
    """All who ask for a copy get the same one."""

    def packed(self):
        if not hasattr(self, "copied"):
            self.copied = super().packed()
        return self.copied


class LargeArraysLoseTheirOwner(Grid):
    """A large array frees its memory when it goes, although an export is in use."""

    def wrap(self, held, name):
        if self.memory.size > 1 << 16:
            held.array = _Releases()
        return super().wrap(held, name)

    def __del__(self):
        if self.memory.size > 1 << 16:
            self.memory.poison()


class _Releases:
    def deleted(self, held):
        pass

    def dropped(self, held):
        Grid.dropped(self, held)


class CopiesOfViewsFromTheBase(Grid):
    """The copy of a view begins where its array does."""

    def packed(self):
        made = self.view(self.shape, elements.row_major(self.shape), 0)
        made.memory = Memory(ctypes.string_at(self.memory.address, self.memory.size))
        return made


class SmallArraysAreSnapshots(Grid):
    """Up to 8 bytes are copied into the object, and exported from there."""

    def describe(self, raw, versioned):
        super().describe(raw, versioned)
        if raw.tensor.data and self.start == 0 and self.itemsize * math.prod(self.shape) <= 8:
            if not hasattr(self, "inline"):
                self.inline = Memory(elements.encode(self.dtype, self.tolist()))
            raw.tensor.data = self.inline.address


PRODUCERS = {
    DoublesOnFourBytes: {"alignment"},
    LegacyWithADevice: {"version-1"},
    CopiesLeakUnlessTaken: {"unconsumed"},
    LeaksWithADeviceUnlessTaken: {"unconsumed"},
    OneCopyForAll: {"copied-alias"},
    LargeArraysLoseTheirOwner: {"owner-kept"},
    CopiesOfViewsFromTheBase: {"copy-true"},
    SmallArraysAreSnapshots: {"zero-copy"},
}


class _As(Taken):
    """An array that reads one type as another."""

    types: ClassVar[dict[str, str]] = {}

    def __init__(self, export, take):
        super().__init__(export, take)
        self.dtype = self.types.get(self.dtype, self.dtype)


class _Signed(_As):
    types: ClassVar = {"uint64": "int64"}


class _Unsigned(_As):
    types: ClassVar = {"int16": "uint16"}


class _Real(Taken):
    def tolist(self):
        found = super().tolist()
        return [complex(x.real) if isinstance(x, complex) else x for x in found]


class ReadsUint64AsInt64(Consumer):
    def make(self, export):
        return _Signed(export, self.take)


class ReadsInt16AsUint16(Consumer):
    def make(self, export):
        return _Unsigned(export, self.take)


class LosesImaginaryParts(Consumer):
    def make(self, export):
        return _Real(export, self.take)


class SwallowsOtherErrors(Consumer):
    """Any exception of a producer but a BufferError becomes None."""

    def __call__(self, x):
        if not hasattr(x, "__dlpack__"):
            raise AttributeError("__dlpack__")
        try:
            capsule = self.ask(x)
        except BufferError:
            raise
        except Exception:
            return None
        export = seen(capsule)
        self.check(export)
        return self.make(export)


class SwallowsInterrupts(Consumer):
    def __call__(self, x):
        with contextlib.suppress(KeyboardInterrupt):
            return super().__call__(x)


class NoneForOtherObjects(Consumer):
    def __call__(self, x):
        return super().__call__(x) if hasattr(x, "__dlpack__") else None


class NoneForOtherAnswers(Consumer):
    def ask(self, x):
        answer = super().ask(x)
        return answer if type(answer).__name__ == "PyCapsule" else None

    def __call__(self, x):
        answer = self.ask(x)
        if answer is None:
            return None
        export = seen(answer)
        self.check(export)
        return self.make(export)


class NoneForOtherCapsules(Consumer):
    def __call__(self, x):
        answer = self.ask(x)
        if abi.name_of(answer) not in abi.STRUCTS:
            return None
        export = seen(answer)
        self.check(export)
        return self.make(export)


CONSUMERS = {
    ReadsUint64AsInt64: {"dtypes"},
    ReadsInt16AsUint16: {"dtypes"},
    LosesImaginaryParts: {"dtypes"},
    SwallowsOtherErrors: {"producer-error"},
    SwallowsInterrupts: {"producer-error"},
    NoneForOtherObjects: {"no-methods"},
    NoneForOtherAnswers: {"no-capsule"},
    NoneForOtherCapsules: {"wrong-name", "used-capsule"},
}
