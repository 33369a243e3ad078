"""The cells of the matrix of frameworks: their axes, the values that each must show, and a producer
made of ctypes alone, with any element type, layout and flag, and a counted deleter.

Nothing here knows dlbridge: element types are NumPy's and ml_dtypes', layouts are numbers.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import time
from dataclasses import dataclass, replace
from typing import ClassVar

import ml_dtypes
import numpy as np

from dlpack_doctor.abi import DLManagedTensor, DLManagedTensorVersioned, DLTensor

CODES = {
    "int": 0,
    "uint": 1,
    "float": 2,
    "bfloat": 4,
    "complex": 5,
    "bool": 6,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
    "float4_e2m1fn": 17,
}


@dataclass(frozen=True)
class DType:
    """An element type: dlbridge's name for it, DLPack's triple, and NumPy's type if any."""

    name: str
    code: int
    bits: int
    lanes: int = 1

    @property
    def itemsize(self) -> int:
        """The bytes of one element; 0 if several share a byte."""
        return self.bits * self.lanes // 8

    @property
    def numpy(self) -> np.dtype:
        return np.dtype(getattr(ml_dtypes, self.name, self.name))

    def encode(self, count: int) -> list[bytes]:
        """The bytes of the elements 1, 2, 3, ..., as NumPy and ml_dtypes encode them."""
        numbers = np.arange(1, count + 1)
        match self.name:
            case "bool":
                return _items(numbers % 2 == 1, 1)
            case "complex32":
                return _items(np.stack([numbers, -numbers], axis=1).astype(np.float16), 4)
            case "complex64" | "complex128":
                return _items((numbers * (1 - 1j)).astype(self.name), self.itemsize)
            case "float4_e2m1fnx2":
                return _items(numbers.astype(np.uint8), 1)
        return _items(numbers.astype(self.numpy), max(1, self.itemsize))


def _items(array: np.ndarray, size: int) -> list[bytes]:
    data = array.tobytes()
    return [data[start : start + size] for start in range(0, len(data), size)]


def _named(kind: str, *widths: int) -> list[DType]:
    return [DType(f"{kind}{bits}", CODES[kind], bits) for bits in widths]


_EIGHT_BIT = [DType(name, code, 8) for name, code in CODES.items() if name.startswith("float8")]
DTYPES = {
    dtype.name: dtype
    for dtype in (
        DType("bool", 6, 8),
        *_named("int", 8, 16, 32, 64),
        *_named("uint", 8, 16, 32, 64),
        *_named("float", 16, 32, 64),
        *_named("bfloat", 16),
        *_named("complex", 32, 64, 128),
        *_EIGHT_BIT,
        DType("float4_e2m1fn", 17, 4),
        DType("float4_e2m1fnx2", 17, 4, 2),
    )
}
INTEGERS = tuple(name for name in DTYPES if "int" in name)
FLOATS = ("float16", "float32", "float64")
EIGHT_BIT = tuple(dtype.name for dtype in _EIGHT_BIT)
# Two elements share a byte: no slice of these can be told apart from its neighbour by an address.
NIBBLES = ("float4_e2m1fn",)


@dataclass(frozen=True)
class Layout:
    """A view of a row of `storage` elements, in elements."""

    name: str
    storage: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def positions(self) -> list[int]:
        """Where each element lies in the row, in row-major order of the view."""
        indices = itertools.product(*map(range, self.shape))
        return [self.offset + _dot(index, self.strides) for index in indices]


def _dot(index: tuple[int, ...], strides: tuple[int, ...]) -> int:
    return sum(step * stride for step, stride in zip(index, strides, strict=True))


LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("contiguous", 6, (2, 3), (3, 1)),
        Layout("strided", 12, (2, 3), (6, 2)),
        Layout("transposed", 6, (2, 3), (1, 2)),
        Layout("reversed", 6, (2, 3), (3, -1), offset=2),
        Layout("broadcast", 3, (2, 3), (0, 1)),
        Layout("zero-size", 6, (0, 3), (3, 1)),
        Layout("0-d", 1, (), ()),
        Layout("offset", 12, (2, 3), (3, 1), offset=3),
        Layout("row", 6, (6,), (1,)),
        Layout("strided row", 12, (6,), (2,)),
        Layout("reversed row", 6, (6,), (-1,), offset=5),
        Layout("broadcast row", 1, (6,), (0,)),
        Layout("empty row", 6, (0,), (1,)),
        Layout("offset row", 12, (6,), (1,), offset=3),
    )
}
ROWS = tuple(name for name in LAYOUTS if name.endswith("row"))
GRIDS = tuple(name for name in LAYOUTS if name not in ROWS)
CONTIGUOUS = ("contiguous", "zero-size", "0-d")
EMPTY = ("zero-size", "empty row")

NATIVE, LEGACY, VERSIONED = PROTOCOLS = ("native", "legacy", "versioned")
WRITABLE, READONLY = ACCESSES = ("writable", "read-only")


@dataclass(frozen=True)
class Case:
    """One cell of the matrix, less the framework."""

    dtype: DType
    layout: Layout
    protocol: str
    access: str

    def __str__(self) -> str:
        return f"{self.dtype.name}-{self.layout.name}-{self.protocol}-{self.access}"

    def versioned(self) -> Case:
        """The same, from a producer that can say whether it may be written."""
        return replace(self, protocol=VERSIONED)

    @property
    def storage(self) -> list[bytes]:
        """Every element of the row that the view lies in."""
        return self.dtype.encode(self.layout.storage)

    @property
    def values(self) -> list[bytes]:
        """The elements of the view, in row-major order."""
        storage = self.storage
        return [storage[position] for position in self.layout.positions]


def cases(
    dtypes: tuple[str, ...], layouts: tuple[str, ...], accesses: tuple[str, ...]
) -> list[Case]:
    """Every combination, but for views of elements that share a byte."""
    return [
        Case(DTYPES[dtype], LAYOUTS[layout], protocol, access)
        for dtype, layout, protocol, access in itertools.product(
            dtypes, layouts, PROTOCOLS, accesses
        )
        if dtype not in NIBBLES or layout in CONTIGUOUS
    ]


def read(
    pointer: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]
) -> list[bytes]:
    """The elements that lie in memory as the four say, in row-major order."""
    positions = Layout("", 0, shape, strides).positions
    if dtype.itemsize:
        return [ctypes.string_at(pointer + at * dtype.itemsize, dtype.itemsize) for at in positions]
    # Two a byte, the low half first; NumPy shows each in a byte of its own.
    pairs = [ctypes.string_at(pointer + at // 2, 1)[0] for at in positions]
    return [bytes([pair >> 4 * (at % 2) & 15]) for pair, at in zip(pairs, positions, strict=True)]


def pack(storage: list[bytes], dtype: DType) -> bytes:
    """The elements side by side, as `read` reads them."""
    if dtype.itemsize:
        return b"".join(storage)
    halves = [item[0] for item in storage] + [0]
    return bytes(low | high << 4 for low, high in zip(halves[::2], halves[1::2], strict=False))


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
        ndim = len(layout.shape)
        extents = (ctypes.c_int64 * ndim)(*layout.shape)
        steps = (ctypes.c_int64 * ndim)(*layout.strides)
        tensor = DLTensor(
            self.pointer, 1, 0, ndim, dtype.code, dtype.bits, dtype.lanes, extents, steps, 0
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
