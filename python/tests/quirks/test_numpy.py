"""NumPy's own ways."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import dlbridge


def test_a_broadcast_view_is_taken_read_only():
    array = np.broadcast_to(np.float32(2), (3, 4))
    tensor = dlbridge.from_dlpack(array)
    assert (tensor.shape, tensor.strides, tensor.readonly) == ((3, 4), (0, 0), True)
    assert np.from_dlpack(tensor).tolist() == [[2.0] * 4] * 3


def test_one_row_with_any_strides_is_contiguous():
    array = np.arange(12, dtype="float32").reshape(1, 12)[:, :6]
    assert array.strides == (48, 4)
    tensor = dlbridge.from_dlpack(array)
    assert (tensor.shape, tensor.strides, tensor.contiguous) == ((1, 6), (12, 1), True)


TOLD = """
import sys
import ml_dtypes
import numpy as np
import dlbridge

name, code = sys.argv[1], (int(sys.argv[2]), int(sys.argv[3]))
dtype = np.dtype(getattr(ml_dtypes, name))
np.dtypes.register_dlpack_dtype(code, dtype)
array = np.arange(4).astype(dtype)
tensor = dlbridge.from_dlpack(array)
assert (tensor.dtype, tensor.data_ptr) == (name, array.ctypes.data), tensor
back = np.from_dlpack(tensor)
assert (back.dtype, back.tolist()) == (dtype, array.tolist()), back
"""


@pytest.mark.parametrize("words", ["bfloat16 4 16", "float8_e4m3fn 10 8"])
def test_a_type_that_numpy_was_told_of_goes_both_ways(words):
    """In a process of its own, since NumPy does not forget."""
    if not hasattr(np.dtypes, "register_dlpack_dtype"):
        pytest.skip("before NumPy 2.5 there is no word for it")
    done = subprocess.run(
        [sys.executable, "-c", TOLD, *words.split()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
