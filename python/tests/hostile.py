"""Descriptors, capsules and producers with any field wrong, over memory that stays valid.

Tests import this; it holds none. A descriptor counts its releases, and lives until the first.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dlpack_doctor.abi import (
    LEGACY,
    STRUCTS,
    VERSIONED,
    Deleter,
    Destructor,
    DLManagedTensor,
    DLManagedTensorVersioned,
    DLTensor,
    address_in,
    name_of,
    new_capsule,
    pointer_of,
)

READ_ONLY, IS_COPIED, SUBBYTE_PADDED = 1, 2, 4
MEMORY_SIZE = 4096
STATM = Path("/proc/self/statm")


_living: dict[int, Managed] = {}
strays: list[int] = []
"""Addresses that were released without being alive: a double release."""


@pytest.fixture(autouse=True)
def no_double_release() -> Iterator[None]:
    """For every test of a module that has this among its names."""
    strays.clear()
    yield
    gc.collect()
    assert strays == []


@Deleter
def _delete(address: int) -> None:
    made = _living.pop(address, None)
    if made is None:
        strays.append(address)
    else:
        made.releases += 1
        if made.on_release is not None:
            made.on_release()


def _release_of(name: bytes) -> Any:
    def release(capsule: int) -> None:
        address = address_in(capsule, name)
        if address is not None:
            raw = STRUCTS[name].from_address(address)
            if raw.deleter:
                Deleter(raw.deleter)(address)

    return Destructor(release)


_release_versioned = _release_of(VERSIONED)
_release_legacy = _release_of(LEGACY)

_OWN: Any = object()


class Managed:
    """A managed tensor of either kind; by default three float32 of its own memory: 0, 1, 2."""

    def __init__(
        self,
        *,
        legacy: bool = False,
        data: int | None = _OWN,
        skew: int = 0,
        ndim: int | None = None,
        shape: Sequence[int] | None = (3,),
        strides: Sequence[int] | None = _OWN,
        dtype: tuple[int, int, int] = (2, 32, 1),
        device: tuple[int, int] = (1, 0),
        byte_offset: int = 0,
        flags: int = 0,
        version: tuple[int, int] = (1, 3),
        deleter: bool = True,
        on_release: Callable[[], object] | None = None,
    ) -> None:
        self.releases = 0
        self.on_release = on_release
        self.memory = (ctypes.c_char * (MEMORY_SIZE + 64))()
        self.base = -(-ctypes.addressof(self.memory) // 64) * 64
        values = (ctypes.c_float * 64).from_address(self.base)
        values[:] = range(64)
        if strides is _OWN:
            strides = None if shape is None else _contiguous(shape)
        self._shape, self._strides = _numbers(shape), _numbers(strides)
        if ndim is None:
            ndim = 0 if shape is None else len(shape)
        code, bits, lanes = dtype
        tensor = DLTensor(
            data=self.base + skew if data is _OWN else data,
            device_type=device[0],
            device_id=device[1],
            ndim=ndim,
            code=code,
            bits=bits,
            lanes=lanes,
            shape=self._shape,
            strides=self._strides,
            byte_offset=byte_offset,
        )
        delete = ctypes.cast(_delete, ctypes.c_void_p).value if deleter else None
        self.legacy = legacy
        if legacy:
            self.raw: Any = DLManagedTensor(tensor=tensor, deleter=delete)
        else:
            self.raw = DLManagedTensorVersioned(
                major=version[0], minor=version[1], flags=flags, tensor=tensor, deleter=delete
            )
        _living[ctypes.addressof(self.raw)] = self

    def capsule(self, name: bytes | None = _OWN) -> Any:
        """A capsule that releases the tensor when it goes unused, if its name is the right one."""
        if name is _OWN:
            name = LEGACY if self.legacy else VERSIONED
        release = _release_legacy if self.legacy else _release_versioned
        return new_capsule(ctypes.addressof(self.raw), name, release)


def _contiguous(shape: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step = min(step * max(extent, 1), 2**62)
    return strides[::-1]


def _numbers(values: Sequence[int] | None) -> Any:
    if values is None:
        return None
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def read(capsule: Any) -> Any:
    """The managed tensor in an unused capsule of either kind, which it keeps alive."""
    name = name_of(capsule)
    raw = STRUCTS[VERSIONED if name == VERSIONED else LEGACY].from_address(
        pointer_of(capsule, name)
    )
    raw.capsule = capsule
    return raw


class Producer:
    """Answers `__dlpack__` with what a function makes of the keywords; `calls` keeps those."""

    def __init__(
        self, answer: Callable[..., object], device: tuple[int, int | None] = (1, 0)
    ) -> None:
        self.answer, self.device = answer, device
        self.calls: list[dict[str, Any]] = []

    def __dlpack__(self, **keywords: Any) -> object:
        self.calls.append(keywords)
        return self.answer(**keywords)

    def __dlpack_device__(self) -> tuple[int, int | None]:
        return self.device


def producer_of(made: Managed) -> Producer:
    return Producer(lambda **_keywords: made.capsule())


def resident_bytes() -> int:
    """The resident set of this process, after a collection."""
    if not STATM.exists():
        pytest.skip("the resident set is read from /proc")
    gc.collect()
    return int(STATM.read_text().split()[1]) * mmap.PAGESIZE
