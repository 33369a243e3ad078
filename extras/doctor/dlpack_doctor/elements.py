"""Element types by name, and the elements that a descriptor reaches, as Python numbers.

Memory is read byte by byte here, without the help of any framework.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any

DTYPES: dict[str, tuple[int, int, int]] = {
    "bool": (6, 8, 1),
    **{f"int{bits}": (0, bits, 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits, 1) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits, 1) for bits in (16, 32, 64)},
    "bfloat16": (4, 16, 1),
    **{f"complex{bits}": (5, bits, 1) for bits in (64, 128)},
}
"""Code, bits and lanes of the types that are checked."""
NAMES = {triple: name for name, triple in DTYPES.items()}
_LETTERS = ("?", *"bhiq", *"BHIQ", *"efd", "", "ff", "dd")
_FORMATS = dict(zip(DTYPES, _LETTERS, strict=True))
BEYOND = (0, 1 << 33)
"""A shape whose second extent does not fit in 32 bits, and that needs no memory."""


def shapes() -> Iterator[tuple[int, ...]]:
    """Shapes of every number of axes that consumers have limits at, and some by chance."""
    for ndim in (*range(1, 10), 33):
        yield (2, *[1] * (ndim - 4), 3, 1, 2) if ndim > 3 else (2, 3, 2)[:ndim]
    chance = random.Random(1)
    for ndim in range(1, 6):
        yield tuple(chance.randint(1, 3) for _ in range(ndim))


def name_of(triple: tuple[int, int, int]) -> str:
    """A type's name, or its three numbers."""
    return NAMES.get(triple, "code {} bits {} lanes {}".format(*triple))


def sample(dtype: str, count: int) -> list[Any]:
    """The numbers that every array of the doctor holds: 0, 1, 2, ... as that type has them."""
    if dtype == "bool":
        return [number % 2 == 1 for number in range(count)]
    if dtype.startswith("complex"):
        return [complex(number) for number in range(count)]
    if "float" in dtype:
        return [float(number) for number in range(count)]
    return list(range(count))


def telling(dtype: str, count: int) -> list[Any]:
    """Numbers that no other type of the same width holds in the same bytes."""
    width = DTYPES[dtype][1]
    if dtype.startswith("uint"):
        return [2**width - 1 - number for number in range(count)]
    if dtype.startswith("int"):
        return [-1 - number for number in range(count)]
    if dtype.startswith("complex"):
        return [complex(number, -number - 0.5) for number in range(count)]
    return sample(dtype, count) if dtype == "bool" else [-0.5 * n - 0.5 for n in range(count)]


def encode(dtype: str, numbers: Sequence[Any]) -> bytes:
    """Contiguous numbers, as that type stores them."""
    if dtype == "bfloat16":
        return b"".join(struct.pack("<f", number)[2:] for number in numbers)
    form = _FORMATS[dtype]
    if dtype.startswith("complex"):
        return b"".join(struct.pack("=" + form, n.real, n.imag) for n in numbers)
    return struct.pack(f"={len(numbers)}{form}", *numbers)


@functools.lru_cache(maxsize=8)
def packed(dtype: str, count: int) -> bytes:
    """The sample as that type stores it."""
    return encode(dtype, sample(dtype, count))


def struct_format(dtype: str, count: int) -> str:
    """The format that packs 0, 1, 2, ... as that type; empty where `struct` has none."""
    form = _FORMATS.get(dtype, "")
    return f"{count}{form}" if len(form) == 1 else ""


def decode(dtype: str, data: bytes) -> Any:
    """One number."""
    if dtype == "bfloat16":
        return struct.unpack("<f", b"\0\0" + data)[0]
    parts = struct.unpack("=" + _FORMATS[dtype], data)
    return complex(*parts) if len(parts) == 2 else parts[0]


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def offsets(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Where each element lies, in row-major order, in elements."""
    indices = itertools.product(*map(range, shape))
    return [sum(map(math.prod, zip(index, strides, strict=True))) for index in indices]


def read(address: int, dtype: str, shape: Sequence[int], strides: Sequence[int]) -> list[Any]:
    """The elements in host memory that the four say, in row-major order."""
    size = DTYPES[dtype][1] // 8
    at = offsets(shape, strides)
    return [decode(dtype, ctypes.string_at(address + size * offset, size)) for offset in at]
