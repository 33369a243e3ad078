"""A producer made of ctypes alone: any element type, layout and flag, and a counted deleter."""

from __future__ import annotations

import ctypes
import gc
import time
from typing import ClassVar

import numpy as np

from abi import DLManagedTensor, DLManagedTensorVersioned, DLTensor

from .cases import LEGACY, READONLY, Case

ALIGNMENT = 64


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def element_type(capsule: object) -> tuple[int, int, int]:
    """Code, bits and lanes of what an unused capsule of the old ABI holds."""
    tensor = DLManagedTensor.from_address(_pointer(capsule, b"dltensor")).tensor
    return tensor.code, tensor.bits, tensor.lanes


def aligned(data: bytes) -> np.ndarray:
    """A copy of the bytes at an address that every framework takes without copying again."""
    room = np.zeros(len(data) + 2 * ALIGNMENT, dtype=np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    room[start : start + len(data)] = np.frombuffer(data, dtype=np.uint8)
    return room[start : start + len(data)]


class Producer:
    """The memory of a case, given in the ABI of the case (legacy, or else versioned).

    What it gave lives until its deleter has run, whatever becomes of this object. Taking it is
    the consumer's duty: a capsule that nobody takes would leak.
    """

    given: ClassVar[dict[int, Producer]] = {}

    def __init__(self, case: Case, memory: np.ndarray) -> None:
        self.case = case
        self.memory = memory
        self.deletions = 0

    @property
    def pointer(self) -> int:
        return self.memory.ctypes.data + self.case.layout.offset * self.case.dtype.itemsize

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_keywords: object) -> object:
        layout, dtype = self.case.layout, self.case.dtype
        rank = len(layout.shape)
        extents = (ctypes.c_int64 * rank)(*layout.shape)
        steps = (ctypes.c_int64 * rank)(*layout.strides)
        tensor = DLTensor(
            self.pointer, 1, 0, rank, dtype.code, dtype.bits, dtype.lanes, extents, steps, 0
        )
        if self.case.protocol == LEGACY:
            name, self.managed = b"dltensor", DLManagedTensor(tensor, None, _delete_at)
        else:
            flags = int(self.case.access == READONLY)
            name = b"dltensor_versioned"
            self.managed = DLManagedTensorVersioned(1, 3, None, _delete_at, flags, tensor)
        address = ctypes.addressof(self.managed)
        self.given[address] = self
        return _new_capsule(address, name, None)


def _delete(address: int) -> None:
    producer = Producer.given.pop(address)
    producer.deletions += 1
    producer.memory = None


# One for all producers: it must not be freed while it runs.
_deleter = Deleter(_delete)
_delete_at = ctypes.cast(_deleter, ctypes.c_void_p)


class Shim:
    """Another producer's `__dlpack__`, asked for one of the ABIs, and without an exchange table."""

    def __init__(self, producer: object, protocol: str) -> None:
        self.producer = producer
        self.protocol = protocol

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.producer.__dlpack_device__()

    def __dlpack__(self, **keywords: object) -> object:
        keywords.pop("max_version", None)
        if self.protocol != LEGACY:
            keywords["max_version"] = (1, 3)
        return self.producer.__dlpack__(**keywords)


def settled(producer: Producer) -> int:
    """How often the memory was given back, once jax has had the chance to: it waits for a
    collection, or for a thread of its own."""
    deadline = time.monotonic() + 5
    while producer.deletions == 0 and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.001)
    return producer.deletions
