"""Consumers whose faults an earlier doctor missed, and the check that finds each.

Tests import this; it holds none.
"""

from __future__ import annotations

import ctypes

from dlpack_doctor import abi
from faulty_consumers import _Kept
from planted import Consumer, Taken


class _With(Consumer):
    keyword: object = None
    name = ""

    def ask(self, x):
        try:
            return x.__dlpack__(max_version=(1, 3), **{self.name: self.keyword})
        except TypeError:
            return x.__dlpack__()


class StreamForHostMemory(_With):
    name, keyword = "stream", 1


class AsksForCopies(_With):
    name, keyword = "copy", True


class AsksForAnotherDevice(_With):
    name, keyword = "dl_device", (2, 0)


class LeaksTheLegacyAbi(Consumer):
    def take(self, export):
        return super().take(export) if export.versioned else _Kept(super().take(export), 0)


class LeaksArraysOfSizeZero(Consumer):
    def take(self, export):
        return _Kept(super().take(export), 0) if 0 in export.shape else super().take(export)


class ReleasesTheLegacyAbiTwice(Consumer):
    def take(self, export):
        return super().take(export) if export.versioned else _Kept(super().take(export), 2)


class PassesTheTensorToTheDeleter(Consumer):
    """The address of `dl_tensor`, which in the legacy ABI is the same."""

    def take(self, export):
        taken = super().take(export)
        return _Elsewhere(taken) if export.versioned else taken


class _Elsewhere:
    def __init__(self, taken):
        self.taken = taken

    def release(self):
        offset = abi.DLManagedTensorVersioned.tensor.offset
        abi.Deleter(self.taken.deleter)(self.taken.export.address + offset)


class DoesNotRenameTheLegacyAbi(Consumer):
    def take(self, export):
        capsule, taken = export.capsule, None
        if not export.versioned:
            _set_destructor(capsule, None)
        taken = super().take(export)
        if not export.versioned:
            abi.rename(capsule, export.name)
        return taken


_set_destructor = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(
    ("PyCapsule_SetDestructor", ctypes.pythonapi)
)


class WritesStrides(Consumer):
    """It fills in what it would rather have read."""

    def make(self, export):
        made = super().make(export)
        if export.ndim and export.tensor.strides and export.strides == (3, 1):
            export.tensor.strides[0] = 6
        return made


class WritesFlags(Consumer):
    def make(self, export):
        made = super().make(export)
        if export.versioned:
            export.raw.flags |= abi.READ_ONLY
        return made


class WritesMemory(Consumer):
    """It normalises numbers in place, which the check of its values does not see."""

    def make(self, export):
        made = super().make(export)
        if export.tensor.data and export.strides == (3, 1) and export.dtype == (2, 32, 1):
            ctypes.memset(export.pointer + 7 * 4, 0, 4)
        return made


class ClearsTheDeleter(Consumer):
    def make(self, export):
        made = super().make(export)
        export.raw.deleter = None
        return made


class _FewAxes(Taken):
    def __init__(self, export, take):
        super().__init__(export, take)
        if len(self.shape) > 4:
            self.shape, self.strides = self.shape[:4], self.strides[:4]


class CutsAxes(Consumer):
    def make(self, export):
        return _FewAxes(export, self.take)


class _SizeOne(Taken):
    def __init__(self, export, take):
        super().__init__(export, take)
        if 77 in self.strides:
            self.pointer += 4


class FollowsStridesOfOneElement(Consumer):
    def make(self, export):
        return _SizeOne(export, self.take)


class _ScalarsAreZero(Taken):
    def tolist(self):
        return super().tolist() if self.shape else [9.0]


class MisreadsScalars(Consumer):
    def make(self, export):
        return _ScalarsAreZero(export, self.take)


class _Half(Taken):
    def tolist(self):
        return super().tolist()[::-1] if self.strides == (1, 2) else super().tolist()


class IgnoresTransposition(Consumer):
    def make(self, export):
        return _Half(export, self.take)


class _Broadcast(Taken):
    def tolist(self):
        return [0.0] * 6 if self.strides == (0, 1) else super().tolist()


class IgnoresStridesOfZero(Consumer):
    def make(self, export):
        return _Broadcast(export, self.take)


class FreesTheFirstWhenTakenTwice(Consumer):
    def __init__(self):
        self.seen = {}

    def __call__(self, x):
        taken = super().__call__(x)
        if self.seen.get("x") is x:
            taken.pointer = _zeros_at
        self.seen["x"] = x
        return taken


_zeros = (ctypes.c_char * 64)()
_zeros_at = ctypes.addressof(_zeros)


FAULTS = {
    StreamForHostMemory: {"keywords"},
    AsksForCopies: {"keywords"},
    AsksForAnotherDevice: {"keywords"},
    LeaksTheLegacyAbi: {"releases"},
    LeaksArraysOfSizeZero: {"releases"},
    ReleasesTheLegacyAbiTwice: {"releases-once"},
    PassesTheTensorToTheDeleter: {"deleter-argument"},
    DoesNotRenameTheLegacyAbi: {"renames"},
    WritesStrides: {"leaves-tensor"},
    WritesFlags: {"leaves-tensor"},
    WritesMemory: {"leaves-tensor"},
    ClearsTheDeleter: {"leaves-tensor"},
    CutsAxes: {"many-axes"},
    FollowsStridesOfOneElement: {"size-1"},
    MisreadsScalars: {"0-d", "0-d-null"},
    IgnoresTransposition: {"transposed"},
    IgnoresStridesOfZero: {"zero"},
    FreesTheFirstWhenTakenTwice: {"twice"},
}
