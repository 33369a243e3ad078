"""No call looks for a module that it has looked for before, whether or not the module exists."""

from __future__ import annotations

import builtins
import copy
import pickle
import sys
from collections.abc import Callable

import numpy as np
import pytest

import dlbridge

SCALAR = dlbridge.from_dlpack(np.array(3, dtype="int64"))
MATRIX = np.arange(6, dtype="float32").reshape(2, 3)
TENSOR = dlbridge.from_dlpack(MATRIX)

CALLS: dict[str, Callable[[], object]] = {
    "float": lambda: float(SCALAR),
    "int": lambda: int(SCALAR),
    "index": SCALAR.__index__,
    "bool": lambda: bool(SCALAR),
    "item": SCALAR.item,
    "item of an index": lambda: TENSOR.item(1, 2),
    "tolist": TENSOR.tolist,
    "tobytes": TENSOR.tobytes,
    "dtype": lambda: TENSOR.dtype,
    "shape": lambda: TENSOR.shape,
    "repr": lambda: repr(TENSOR),
    "part": lambda: TENSOR[1, ::2],
    "reshape": lambda: TENSOR.reshape(3, 2),
    "copy": TENSOR.copy,
    "deepcopy": lambda: copy.deepcopy(TENSOR),
    "__array__": TENSOR.__array__,
    "__array_interface__": lambda: TENSOR.__array_interface__,
    "__numpy_dtype__": lambda: TENSOR.__numpy_dtype__,
    "__arrow_c_array__": TENSOR.__arrow_c_array__,
    "zeros": lambda: dlbridge.zeros((2, 3), dtype=np.float32),
    "zeros of a name": lambda: dlbridge.zeros((2, 3), dtype="float32").numpy(),
    "from_bytes": lambda: dlbridge.from_bytes(bytearray(8), dtype="float32"),
    "from_dlpack": lambda: dlbridge.from_dlpack(MATRIX),
    "from_dlpack of a copy": lambda: dlbridge.from_dlpack(MATRIX, copy=True),
    "np.asarray": lambda: np.asarray(TENSOR),
    "np.from_dlpack": lambda: np.from_dlpack(TENSOR),
    "memoryview": lambda: memoryview(TENSOR),
    "reduce": lambda: TENSOR.__reduce_ex__(pickle.HIGHEST_PROTOCOL),
}
for name in ("bool", "uint8", "int16", "float16", "float32", "float64", "complex128"):
    CALLS[f"numpy of {name}"] = dlbridge.zeros(3, dtype=name).numpy


@pytest.mark.parametrize("name", CALLS)
def test_no_call_imports_again(name, monkeypatch):
    call, found = CALLS[name], []
    # As where `ml_dtypes` is not installed: each import of it would fail after a search.
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    call()
    load = builtins.__import__

    def counted(module, *arguments, **keywords):
        found.append(module)
        return load(module, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", counted)
    call()
    monkeypatch.undo()
    assert found == []
