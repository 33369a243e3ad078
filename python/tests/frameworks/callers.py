"""The kinds of array that a caller may have: how each is made, read, and asked for.

What each framework makes of every type and layout belongs to `kinds` and `quirks`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from .kinds import FRAMEWORKS


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
    rank: int | None = None

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
        rank=1,
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
