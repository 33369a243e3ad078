"""Consumers with one fault each, or one surprise, and the check that is meant for it.

Tests import this; it holds none.
"""

from __future__ import annotations

import ctypes

from dlpack_doctor import abi, elements, source
from planted import Consumer, Taken, seen


class TakesNothing(Consumer):
    def check(self, export):
        raise BufferError("not today")


class ImportsCapsulesOnly(Consumer):
    def ask(self, x):
        if hasattr(x, "__dlpack__"):
            raise TypeError("expected a capsule")
        return x


class OwnKeyword(Consumer):
    def ask(self, x):
        try:
            return x.__dlpack__(max_version=(1, 3), colour="red")
        except TypeError:
            return x.__dlpack__()


class ListOfVersions(Consumer):
    def ask(self, x):
        try:
            return x.__dlpack__(max_version=[1, 3])
        except TypeError:
            return x.__dlpack__()


class RefusesNewerMinor(Consumer):
    def check(self, export):
        super().check(export)
        if export.version and export.version[1] > 3:
            raise BufferError(f"version {export.version}")


class TakesAnyMajor(Consumer):
    def check(self, export):
        if not export.version or export.version[0] == 1:
            super().check(export)


class _Contiguous(Taken):
    def __init__(self, export, take):
        super().__init__(export, take)
        if min(self.strides, default=0) < 0:
            self.strides = elements.row_major(self.shape)


class IgnoresNegativeStrides(Consumer):
    def make(self, export):
        return _Contiguous(export, self.take)


class _NoGaps(Taken):
    def __init__(self, export, take):
        super().__init__(export, take)
        if self.strides and self.strides[0] == 8:
            self.strides = elements.row_major(self.shape)


class IgnoresGaps(Consumer):
    def make(self, export):
        return _NoGaps(export, self.take)


class _WithoutOffset(Taken):
    def __init__(self, export, take):
        super().__init__(export, take)
        self.pointer -= export.tensor.byte_offset


class IgnoresByteOffset(Consumer):
    def make(self, export):
        return _WithoutOffset(export, self.take)


class _ZeroStrides(Taken):
    def __init__(self, export, take):
        null = export.ndim and export.strides is None
        super().__init__(export, take)
        if null:
            self.strides = (0,) * len(self.shape)


class ReadsNullStridesAsZero(Consumer):
    def make(self, export):
        return _ZeroStrides(export, self.take)


class _AlignedDown(Taken):
    def __init__(self, export, take):
        super().__init__(export, take)
        if export.ndim == 2 and export.strides == (3, 1):
            self.pointer -= self.pointer % 16


class AssumesAlignment(Consumer):
    def make(self, export):
        return _AlignedDown(export, self.take)


class _Misread(Taken):
    def tolist(self):
        found = super().tolist()
        return [0] * len(found) if self.dtype == "int16" else found


class MisreadsAnElementType(Consumer):
    def make(self, export):
        return _Misread(export, self.take)


class _Kept:
    """A tensor that is never released, or another number of times than once."""

    def __init__(self, taken, times):
        self.taken, self.times = taken, times

    def release(self):
        for _ in range(self.times):
            abi.Deleter(self.taken.deleter)(self.taken.export.address)


class ForgetsToRelease(Consumer):
    def take(self, export):
        return _Kept(super().take(export), 0)


class ReleasesTwice(Consumer):
    def take(self, export):
        taken = super().take(export)
        # A dlbridge.Tensor, which is offered to time it, would not stand it.
        return _Kept(taken, 2) if taken.deleter and export.address in source._made else taken


class ForgetsWithoutAContext(Consumer):
    def take(self, export):
        context = export.raw.manager_ctx
        taken = super().take(export)
        return taken if context else _Kept(taken, 0)


class ReleasesAtOnce(Consumer):
    def take(self, export):
        taken = super().take(export)
        taken.release()
        return taken


_set_destructor = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(
    ("PyCapsule_SetDestructor", ctypes.pythonapi)
)


class DoesNotRename(Consumer):
    """It takes the destructor away instead."""

    def take(self, export):
        _set_destructor(export.capsule, None)
        capsule = export.capsule
        taken = export.take()
        abi.rename(capsule, export.name)
        return taken


class TakesUsedCapsules(Consumer):
    def __call__(self, x):
        capsule = self.ask(x)
        used = {new: old for old, new in abi.USED.items()}
        name = abi.name_of(capsule)
        if name in used:
            abi.rename(capsule, used[name])
        return self.make(self._checked(capsule))

    def _checked(self, capsule):
        export = seen(capsule)
        self.check(export)
        return export


class TakesAnyName(Consumer):
    def __call__(self, x):
        capsule = self.ask(x)
        if abi.name_of(capsule) == b"something_else":
            abi.rename(capsule, abi.VERSIONED)
        export = seen(capsule)
        self.check(export)
        return self.make(export)


class TakesNumbers(Consumer):
    def __call__(self, x):
        answer = self.ask(x)
        if answer == 42:
            return [42]
        export = seen(answer)
        self.check(export)
        return self.make(export)


class ReleasesWhatItRefuses(Consumer):
    """The capsule does so, too."""

    def check(self, export):
        try:
            super().check(export)
        except BufferError:
            if export.device == (1, 0):
                abi.Deleter(export.raw.deleter)(export.address)
            raise


class LeaksWhatItRefuses(Consumer):
    def check(self, export):
        try:
            super().check(export)
        except BufferError:
            if export.device == (1, 0):
                abi.rename(export.capsule, abi.USED[export.name])
            raise


class LeaksWhatIsOnAGpu(Consumer):
    def check(self, export):
        try:
            super().check(export)
        except BufferError:
            if export.device[0] == 2:
                abi.rename(export.capsule, abi.USED[export.name])
            raise


class HidesErrors(Consumer):
    def ask(self, x):
        try:
            return super().ask(x)
        except BufferError as error:
            raise RuntimeError("it did not work") from error


class TakesAnything(Consumer):
    def __call__(self, x):
        return super().__call__(x) if hasattr(x, "__dlpack__") else [x]


class _Seen(Taken):
    """Exports its elements as float32, whatever they are, on the CPU, wherever they are."""

    def __dlpack__(self, *, max_version=None, **keywords):
        from dlpack_doctor.source import Managed

        return Managed(self.shape, dtype="float32", legacy=max_version is None).capsule()


class _Unchecked(Consumer):
    field = ""

    def check(self, export):
        if export.version and export.version[0] != 1:
            raise BufferError(f"version {export.version}")
        if self.field != "dtype" and export.dtype not in elements.NAMES:
            raise BufferError(f"element type {export.dtype}")
        if self.field != "lanes" and export.dtype[2] > 1:
            raise BufferError(f"lanes {export.dtype}")
        if self.field != "device" and export.device != (1, 0):
            raise BufferError(f"device {export.device}")

    def make(self, export):
        odd = export.dtype not in elements.NAMES or export.device != (1, 0)
        return (_Seen if odd else Taken)(export, self.take)


class TakesUnknownTypes(_Unchecked):
    field = "dtype"


class TakesUnknownDevices(_Unchecked):
    field = "device"


class IgnoresCopyTrue(Consumer):
    def __call__(self, x, *, copy=None):
        if copy is None:
            return super().__call__(x)
        return self.make(seen(x.__dlpack__(max_version=(1, 3), copy=None if copy else copy)))


FAULTS = {
    TakesNothing: {"takes"},
    OwnKeyword: {"keywords"},
    ListOfVersions: {"keywords"},
    RefusesNewerMinor: {"newer-minor"},
    TakesAnyMajor: {"other-major"},
    IgnoresNegativeStrides: {"negative"},
    IgnoresGaps: {"gaps"},
    IgnoresByteOffset: {"byte-offset"},
    ReadsNullStridesAsZero: {"null-strides"},
    AssumesAlignment: {"unaligned"},
    MisreadsAnElementType: {"dtypes"},
    ForgetsToRelease: {"releases"},
    ReleasesTwice: {"releases-once"},
    ForgetsWithoutAContext: {"null-context"},
    ReleasesAtOnce: {"keeps"},
    DoesNotRename: {"renames"},
    TakesUsedCapsules: {"used-capsule"},
    TakesAnyName: {"wrong-name"},
    TakesNumbers: {"no-capsule"},
    ReleasesWhatItRefuses: {"refused-released"},
    LeaksWhatItRefuses: {"refused-released"},
    LeaksWhatIsOnAGpu: {"refused-gpu-released"},
    HidesErrors: {"producer-error"},
    TakesAnything: {"no-methods"},
    IgnoresCopyTrue: {"copy-true"},
    TakesUnknownTypes: {"unknown-dtype"},
    # Two devices are offered: one that no framework has, and a GPU that is not there.
    TakesUnknownDevices: {"unknown-device", "absent-gpu"},
}


class AsksForTheOldAbi(Consumer):
    def ask(self, x):
        return x.__dlpack__()


class WantsNewerProducers(Consumer):
    def ask(self, x):
        return x.__dlpack__(max_version=(1, 3))


class RefusesTheOldAbi(Consumer):
    def check(self, export):
        super().check(export)
        if not export.versioned:
            raise BufferError("too old")


class RefusesNegativeStrides(Consumer):
    def check(self, export):
        super().check(export)
        if min(export.strides or (0,), default=0) < 0:
            raise BufferError("negative strides")


class RaisesTypeErrors(Consumer):
    def __call__(self, x):
        if not hasattr(x, "__dlpack__"):
            raise TypeError("no array")
        return super().__call__(x)


SURPRISES = {
    ImportsCapsulesOnly: {"takes"},
    AsksForTheOldAbi: {"asks-versioned"},
    WantsNewerProducers: {"old-producer"},
    RefusesTheOldAbi: {"old-producer", "old-answer"},
    RefusesNegativeStrides: {"negative"},
    RaisesTypeErrors: {"no-methods"},
}
