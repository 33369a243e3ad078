"""The frameworks: how each makes an array, reads one, and takes one over DLPack; the kinds of array
that a caller may have: how each is made, read, and asked for."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import itertools
import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from .cases import (
    ACCESSES,
    CONTIGUOUS,
    DTYPES,
    EIGHT_BIT,
    FLOATS,
    GRIDS,
    INTEGERS,
    NIBBLES,
    READONLY,
    ROWS,
    WRITABLE,
    Case,
    Producer,
    element_type,
    read,
)

COMPLEX = ("complex64", "complex128")


def numpy_view(case: Case, memory: np.ndarray) -> np.ndarray:
    """The case as a NumPy array over the memory of its row."""
    dtype, layout = case.dtype, case.layout
    # As integers where they can be: NumPy cannot stride over every type of ml_dtypes.
    plain = dtype.numpy if dtype.itemsize > 8 else np.dtype(f"u{dtype.itemsize}")
    row = memory.view(plain)[layout.offset :]
    steps = [stride * dtype.itemsize for stride in layout.strides]
    array = as_strided(row, layout.shape, steps).view(dtype.numpy)
    if case.access == READONLY:
        array.flags.writeable = False
    return array


def items(array: np.ndarray) -> list[bytes]:
    """The bytes of each element, in row-major order."""
    return [item.tobytes() for item in np.ascontiguousarray(array).reshape(-1)]


class Framework:
    """One framework. The lists name what it has; what it then refuses stands in `quirks`."""

    name: str
    module: str
    oldest: tuple[int, ...] = (0,)
    """The first release that the table of quirks describes."""
    dtypes: tuple[str, ...]
    """Those that it can make, and give through DLPack."""
    layouts: tuple[str, ...] = GRIDS
    """Those that it can make."""
    accesses: tuple[str, ...] = ACCESSES
    """Whether it has arrays that may be written, and ones that may not."""
    taken_layouts: tuple[str, ...] = GRIDS
    """Those that it is offered."""
    shares_on_making: bool = True
    """Whether its arrays can lie over memory that a test watches."""

    @functools.cached_property
    def missing(self) -> str | None:
        """Why it cannot be tested, if it cannot."""
        if importlib.util.find_spec(self.module) is None:
            return f"{self.module} is not installed"
        if self.oldest > (0,):
            found = importlib.metadata.version(self.module)
            if tuple(map(int, found.split(".")[:2])) < self.oldest:
                return f"{self.module} {found} is older than the table of quirks"
        return None

    @property
    def foreign(self) -> tuple[str, ...]:
        """The element types that it does not have."""
        return tuple(name for name in DTYPES if name not in self.dtypes)

    def load(self) -> ModuleType:
        if self.missing:
            pytest.skip(self.missing)
        return importlib.import_module(self.module)

    def make(self, case: Case, memory: np.ndarray) -> object:
        """An array of the case over `memory`, which it keeps alive."""
        raise NotImplementedError

    def offer(self, array: object, _case: Case) -> object:
        """What is given to dlbridge in the array's place."""
        return array

    def take(self, x: object) -> object:
        """The framework's array over what `x` gives."""
        return self.load().from_dlpack(x)

    def shape(self, array: object) -> tuple[int, ...]:
        return tuple(array.shape)

    def dtype(self, array: object) -> str:
        return str(array.dtype)

    def readonly(self, _array: object) -> bool | None:
        """Whether the array may not be written; None if the framework cannot tell."""
        return None

    def pointer(self, array: object) -> int:
        raise NotImplementedError

    def strides(self, array: object) -> tuple[int, ...]:
        """In elements."""
        raise NotImplementedError

    def values(self, array: object) -> list[bytes]:
        raise NotImplementedError


class NumPy(Framework):
    name = module = "numpy"
    dtypes = ("bool", *INTEGERS, *FLOATS, *COMPLEX)

    def make(self, case, memory):
        return numpy_view(case, memory)

    def readonly(self, array):
        return not array.flags.writeable

    def pointer(self, array):
        return array.ctypes.data

    def strides(self, array):
        return tuple(step // array.itemsize for step in array.strides)

    def values(self, array):
        return items(array)


class ArrayApiStrict(NumPy):
    name = "array-api-strict"
    module = "array_api_strict"
    dtypes = ("bool", *INTEGERS, "float32", "float64", *COMPLEX)

    def make(self, case, memory):
        return self.load().asarray(numpy_view(case, memory), copy=False)

    def dtype(self, array):
        return str(array._array.dtype)

    def readonly(self, array):
        return super().readonly(array._array)

    def pointer(self, array):
        return super().pointer(array._array)

    def strides(self, array):
        return super().strides(array._array)

    def values(self, array):
        return items(array._array)


class Torch(Framework):
    name = module = "torch"
    dtypes = (
        "bool",
        *INTEGERS,
        *FLOATS,
        "bfloat16",
        "complex32",
        *COMPLEX,
        *(name for name in EIGHT_BIT if DTYPES[name].code >= 10),
        "float4_e2m1fnx2",
    )
    # No step may be negative.
    layouts = tuple(name for name in GRIDS if name != "reversed")

    def make(self, case, memory):
        torch, layout = self.load(), case.layout
        row = torch.from_numpy(memory).view(self._of_name(case.dtype.name))
        return row.as_strided(layout.shape, layout.strides, layout.offset)

    def _of_name(self, name):
        return getattr(self.load(), name.replace("fnx2", "fn_x2"))

    def offer(self, array, case):
        if case.access == WRITABLE:
            return array
        from torch.utils.dlpack import ReadOnlyTensorWrapper

        return ReadOnlyTensorWrapper(array)

    def dtype(self, array):
        return str(array.dtype).removeprefix("torch.").replace("fn_x2", "fnx2")

    def pointer(self, array):
        return array.data_ptr()

    def strides(self, array):
        return array.stride()

    def values(self, array):
        # As integers of the same size: torch cannot copy every type.
        torch, size = self.load(), array.element_size()
        if size > 8:
            return items(array.contiguous().numpy())
        plain = array.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size])
        return items(plain.numpy())


class Jax(Framework):
    name = module = "jax"
    oldest = (0, 10)
    dtypes = (
        "bool",
        *INTEGERS,
        *FLOATS,
        "bfloat16",
        *COMPLEX,
        *EIGHT_BIT,
        "float4_e2m1fn",
    )
    # A slice is a new array, and all arrays are immutable.
    layouts = CONTIGUOUS
    accesses = (READONLY,)
    shares_on_making = False

    def load(self):
        jax = super().load()
        jax.config.update("jax_enable_x64", True)
        return jax

    @property
    def gives_versioned(self) -> bool:
        """Whether this release knows DLPack 1.0."""
        jax = self.load()
        capsule = jax.numpy.zeros(1).__dlpack__(max_version=(1, 3))
        return "dltensor_versioned" in repr(capsule)

    def make(self, case, memory):
        jax = self.load()
        if case.dtype.name in NIBBLES:
            numbers = np.concatenate([np.frombuffer(i, case.dtype.numpy) for i in case.storage])
            count = len(case.values)
            return jax.numpy.asarray(numbers[:count].reshape(case.layout.shape))
        return jax.numpy.asarray(numpy_view(case, memory))

    def take(self, x):
        return self.load().dlpack.from_dlpack(x)

    def readonly(self, _array):
        return True

    def pointer(self, array):
        return array.unsafe_buffer_pointer()

    def strides(self, array):
        strides, step = [0] * array.ndim, 1
        for axis in reversed(array.format.layout.major_to_minor):
            strides[axis] = step
            step *= max(array.shape[axis], 1)
        return tuple(strides)

    def values(self, array):
        return items(np.asarray(array))


class ArrowTensor(Framework):
    name = "pyarrow.Tensor"
    module = "pyarrow"
    oldest = (26,)
    dtypes = (*INTEGERS, *FLOATS)
    # It is made from a NumPy array without negative steps.
    layouts = tuple(name for name in GRIDS if name != "reversed")

    def make(self, case, memory):
        return self.load().Tensor.from_numpy(numpy_view(case, memory))

    def take(self, x):
        return self.load().Tensor.from_dlpack(x)

    def dtype(self, array):
        name = str(array.type)
        return {"halffloat": "float16", "float": "float32", "double": "float64"}.get(name, name)

    def readonly(self, array):
        return not array.is_mutable

    def pointer(self, array):
        return array.to_numpy().ctypes.data

    def strides(self, array):
        size = array.type.bit_width // 8
        return tuple(step // size for step in array.strides)

    def values(self, array):
        return items(array.to_numpy())


class ArrowArray(ArrowTensor):
    name = "pyarrow.Array"
    # Of ndim 1 and without gaps, and never to be written.
    layouts = ("row", "empty row", "offset row")
    taken_layouts = (*ROWS, "contiguous", "0-d")
    accesses = (READONLY,)

    def make(self, case, memory):
        pa, layout = self.load(), case.layout
        kind = pa.from_numpy_dtype(case.dtype.numpy)
        buffers = [None, pa.py_buffer(memory)]
        return pa.Array.from_buffers(kind, layout.shape[0], buffers, offset=layout.offset)

    def take(self, x):
        return self.load().Array.from_dlpack(x)

    def shape(self, array):
        return (len(array),)

    def readonly(self, _array):
        return True

    def pointer(self, array):
        size = array.type.bit_width // 8
        return array.buffers()[1].address + array.offset * size

    def strides(self, _array):
        return (1,)

    def values(self, array):
        return items(array.to_numpy(zero_copy_only=False))


class TvmFfi(Framework):
    name = "tvm-ffi"
    module = "tvm_ffi"
    dtypes = tuple(DTYPES)
    # It has no flag for it.
    accesses = (WRITABLE,)

    def dtype(self, array):
        # Not array.dtype: it has no name for complex numbers.
        triple = element_type(array.__dlpack__())
        return next(d.name for d in DTYPES.values() if (d.code, d.bits, d.lanes) == triple)

    def make(self, case, memory):
        # It makes no arrays: all come over DLPack.
        legacy = Case(case.dtype, case.layout, "legacy", WRITABLE)
        return self.load().from_dlpack(Producer(legacy, memory))

    def pointer(self, array):
        return array.data_ptr()

    def strides(self, array):
        return tuple(array.strides)

    def values(self, array):
        dtype = DTYPES[self.dtype(array)]
        return read(self.pointer(array), dtype, self.shape(array), self.strides(array))


FRAMEWORKS = {
    framework.name: framework
    for framework in (
        NumPy(),
        Torch(),
        Jax(),
        ArrayApiStrict(),
        ArrowArray(),
        ArrowTensor(),
        TvmFfi(),
    )
}


def pairwise(cells: list[Case]) -> set[Case]:
    """Cells in which each two values (a dtype and a layout, a layout and a protocol, ...) that
    stand together in some cell do so."""
    seen, kept = set(), set()
    # Not in the order of the axes, where most values would stand beside the first of another axis.
    for cell in random.Random(0).sample(cells, len(cells)):
        values = (cell.dtype.name, cell.layout.name, cell.protocol, cell.access)
        pairs = set(itertools.combinations(enumerate(values), 2))
        if not pairs <= seen:
            seen |= pairs
            kept.add(cell)
    return kept


def matrix(cells_of: Callable[[Framework], list[Case]]) -> list:
    """The parameters of a test over all frameworks; one that is skipped for a missing one. Cells
    that have no new pair of values are long tests."""
    parameters = []
    for name, framework in FRAMEWORKS.items():
        if not framework.missing:
            cells = cells_of(framework)
            short = pairwise(cells)
            for case in cells:
                marks = () if case in short else pytest.mark.long
                parameters.append(pytest.param(framework, case, id=f"{name}-{case}", marks=marks))
        else:
            skip = pytest.mark.skip(reason=framework.missing)
            parameters.append(pytest.param(framework, None, id=name, marks=skip))
    return parameters


@dataclass(frozen=True)
class Kind:
    """One kind of array."""

    module: str
    wrap: Callable[[Any, Any], Any]
    """An array of this kind with the numbers of a NumPy array, given the module."""
    unwrap: Callable[[Any], Any] = np.from_dlpack
    """A NumPy array over its memory, or of its numbers."""
    take: Callable[[Any, Any], Any] = lambda module, x: module.from_dlpack(x)
    """What a user calls to get one."""
    copies: bool = False
    immutable: bool = False
    forgets: bool = False
    """Whether it cannot be trusted with read-only memory."""
    ndim: int | None = None

    def load(self) -> Any:
        older = self.module == "pyarrow" and FRAMEWORKS["pyarrow.Tensor"].missing
        if older:
            # Before release 26 it takes nothing.
            pytest.skip(older)
        return pytest.importorskip(self.module, reason=f"{self.module} is not installed")

    def array(self, values: Any) -> Any:
        return self.wrap(self.load(), np.asarray(values, dtype="float32"))


def _tensorflow(module: Any, x: Any) -> Any:
    return module.experimental.dlpack.from_dlpack(x.__dlpack__())


KINDS = {
    "numpy": Kind("numpy", lambda _, a: a, lambda x: x),
    "array_api_strict": Kind("array_api_strict", lambda m, a: m.asarray(a), lambda x: x._array),
    "torch": Kind("torch", lambda m, a: m.tensor(a), forgets=True),
    "jax": Kind(
        "jax",
        lambda m, a: m.numpy.asarray(a),
        take=lambda m, x: m.numpy.from_dlpack(x),
        immutable=True,
    ),
    "tvm_ffi": Kind("tvm_ffi", lambda m, a: m.from_dlpack(a), forgets=True),
    "pyarrow.Tensor": Kind(
        "pyarrow",
        lambda m, a: m.Tensor.from_numpy(a),
        lambda x: x.to_numpy(),
        lambda m, x: m.Tensor.from_dlpack(x),
    ),
    "pyarrow.Array": Kind(
        "pyarrow",
        lambda m, a: m.array(a),
        lambda x: x.to_numpy(),
        lambda m, x: m.Array.from_dlpack(x),
        immutable=True,
        ndim=1,
    ),
    "dlbridge": Kind("dlbridge", lambda m, a: m.from_dlpack(a.copy())),
    # Paddle stands before TensorFlow: imported after it, Paddle 3.3 crashes.
    "paddle": Kind("paddle", lambda m, a: m.to_tensor(a), forgets=True),
    "tensorflow": Kind(
        "tensorflow", lambda m, a: m.constant(a), take=_tensorflow, immutable=True, forgets=True
    ),
    "mlx": Kind(
        "mlx.core", lambda m, a: m.array(a), lambda x: np.array(x), copies=True, forgets=True
    ),
}


def pointer(array: np.ndarray) -> int:
    return array.ctypes.data


class Watched(np.ndarray):
    """An array that can be watched dying."""


def watched(values: Any) -> tuple[np.ndarray, weakref.ref]:
    """A writable array, and whether it is alive."""
    array = np.array(values, dtype="float32").view(Watched)
    return array, weakref.ref(array)
