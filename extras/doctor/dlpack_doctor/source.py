"""The producer of the consumer checks: any field can be chosen, and its memory is watched.

Invariant: a descriptor and its memory are never freed, so a second release is only counted.
With `poison`, released memory is overwritten, which a consumer that still reads it shows.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

from dlpack_doctor import abi, elements, reproduce

ALIGNMENT = 64
POISON = 0x5A
_OWN: Any = object()
_made: dict[int, Managed] = {}


strays: list[int] = []
"""Addresses that a deleter was called with, and that are no managed tensor."""


def _release(address: int) -> None:
    if address in _made:
        _made[address].released()
    else:
        strays.append(address)


_delete = abi.Deleter(_release)


def _destructor_of(name: bytes) -> Any:
    def destroy(capsule: int) -> None:
        address = abi.address_in(capsule, name)
        if address is not None:
            made = _made[address]
            made.dropped += 1
            if made.raw.deleter:
                made.released()

    return abi.Destructor(destroy)


_destructors = {name: _destructor_of(name) for name in abi.STRUCTS}


class Managed:
    """A managed tensor of either ABI over a row of numbers 0, 1, 2, ..."""

    def __init__(
        self,
        shape: Sequence[int] | None = (2, 3),
        *,
        dtype: str | tuple[int, int, int] = "float32",
        strides: Sequence[int] | None = _OWN,
        offset: int = 0,
        byte_offset: int = 0,
        skew: int = 0,
        legacy: bool = False,
        null_data: bool = False,
        flags: int = 0,
        version: tuple[int, int] = (1, 3),
        device: tuple[int, int] = (abi.CPU, 0),
        deleter: bool = True,
        context: bool = True,
        name: bytes | None = None,
        numbers: Sequence[Any] | None = None,
        poison: bool = False,
    ) -> None:
        """`offset` counts elements from the row's start, `skew` bytes off the alignment."""
        self.releases = 0
        self._poison = poison
        self.dropped = 0
        """How often an unconsumed capsule went."""
        known = dtype if isinstance(dtype, str) else "float32"
        triple = elements.DTYPES[dtype] if isinstance(dtype, str) else dtype
        is_sample = numbers is None
        if numbers is None:
            numbers = elements.sample(known, 32)
        data = elements.encode(known, numbers)
        self._room = (ctypes.c_char * (len(data) + 2 * ALIGNMENT))()
        base = -(-ctypes.addressof(self._room) // ALIGNMENT) * ALIGNMENT + skew
        self._row, self._length = base, len(data)
        ctypes.memmove(base, data, len(data))
        size = len(data) // len(numbers)
        self.pointer = 0 if null_data else base + offset * size
        if strides is _OWN:
            strides = None if shape is None else elements.row_major(shape)
        self.shape = tuple(shape or ())
        steps = elements.row_major(self.shape) if strides is None else tuple(strides)
        self._numbers, self._steps, self._start = numbers, steps, offset
        self.dtype = known
        self._shape, self._strides = _numbers(shape), _numbers(strides)
        code, bits, lanes = triple
        tensor = abi.DLTensor(
            self.pointer - byte_offset if self.pointer else None,
            *device,
            len(self.shape),
            code,
            bits,
            lanes,
            self._shape,
            self._strides,
            byte_offset,
        )
        delete = abi.address_of(_delete) if deleter else None
        # Never read; some consumers read NULL as a sign that there is nothing to release.
        owner = base if context else None
        self.legacy = legacy
        self.raw: Any = (
            abi.DLManagedTensor(tensor, owner, delete)
            if legacy
            else abi.DLManagedTensorVersioned(*version, owner, delete, flags, tensor)
        )
        self.name = name or (abi.LEGACY if legacy else abi.VERSIONED)
        _made[ctypes.addressof(self.raw)] = self
        self._as_made = self._bytes()
        form = elements.struct_format(known, len(numbers))
        reproduce.note(
            offer={
                "shape": shape,
                "strides": strides,
                "start": offset * size - byte_offset,
                "byte_offset": byte_offset,
                "skew": skew,
                "null_data": null_data,
                "triple": triple,
                "device": device,
                "legacy": legacy,
                "version": version,
                "flags": flags,
                "deleter": deleter,
                "context": context,
                "name": self.name,
                "bytes": len(data),
                "numbers": "range(32)" if is_sample else numbers,
                **({"dtype_format": form} if form else {}),
            }
        )

    @functools.cached_property
    def values(self) -> list[Any]:
        """The elements, in row-major order."""
        at = elements.offsets(self.shape, self._steps)
        return [self._numbers[self._start + offset] for offset in at]

    def _bytes(self) -> dict[str, bytes]:
        """The parts that no consumer may write."""
        sizes = {"shape": self._shape, "strides": self._strides}
        parts = {name: bytes(given) for name, given in sizes.items() if given is not None}
        memory = ctypes.string_at(self._row, self._length)
        # A consumer owns the tensor's context and deleter as little as the rest.
        return {"the descriptor": bytes(self.raw), "the memory": memory, **parts}

    def written(self) -> list[str]:
        """The parts that differ from what was offered."""
        now = self._bytes()
        return [name for name, part in self._as_made.items() if now[name] != part]

    def released(self) -> None:
        """Count a release, and overwrite the memory if `poison` was asked for."""
        self.releases += 1
        if self._poison:
            ctypes.memset(self._row, POISON, self._length)

    def capsule(self) -> Any:
        """A capsule that releases the tensor unless it is consumed."""
        reproduce.about_to_call()
        return abi.new_capsule(ctypes.addressof(self.raw), self.name, _destructors.get(self.name))


def _numbers(values: Sequence[int] | None) -> Any:
    return None if values is None else (ctypes.c_int64 * max(len(values), 1))(*values)


class Producer:
    """An object with the two methods; `calls` keeps the keywords, `capsules` the answers."""

    def __init__(
        self, answer: Callable[[dict[str, Any]], Any], device: tuple[int, int] = (abi.CPU, 0)
    ) -> None:
        self._answer, self._device = answer, device
        self.calls: list[dict[str, Any]] = []
        self.capsules: list[Any] = []

    def __dlpack__(self, **keywords: Any) -> Any:
        self.calls.append(keywords)
        capsule = self._answer(keywords)
        self.capsules.append(capsule)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def producer_of(made: Managed) -> Producer:
    """A producer that answers every call with one managed tensor."""
    device = (made.raw.tensor.device_type, made.raw.tensor.device_id)
    return Producer(lambda _keywords: made.capsule(), device)
