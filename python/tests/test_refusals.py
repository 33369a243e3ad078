"""A call that a tensor refuses leaves nothing behind, however often it is repeated."""

from __future__ import annotations

import contextlib
import ctypes
import sys

import numpy as np
import pytest

import dlbridge
from abi import DLTensor
from test_exchange_api import CAPSULE_NAME, Table, pointer

TENSOR = dlbridge.zeros((8,), dtype="uint8")
READ_ONLY = dlbridge.from_dlpack(np.frombuffer(bytes(8), "u1"))
TABLE = Table.from_address(pointer(dlbridge.Tensor.__dlpack_c_exchange_api__, CAPSULE_NAME))

REFUSALS = {
    "a device": lambda: TENSOR.__dlpack__(dl_device=(2, 0)),
    "a stream": lambda: TENSOR.__dlpack__(stream=5),
    "an unknown keyword": lambda: TENSOR.__dlpack__(unknown=1),
    "a positional argument": lambda: TENSOR.__dlpack__(1),
    "a version that is no int": lambda: TENSOR.__dlpack__(max_version=(1, "x")),
    "a copy that is no bool": lambda: TENSOR.__dlpack__(copy=3),
    "read-only memory by the legacy ABI": lambda: READ_ONLY.__dlpack__(),
    "a writable buffer": lambda: (ctypes.c_char * 8).from_buffer(READ_ONLY),
    "flags of a buffer that are too large": lambda: TENSOR.__buffer__(1 << 40),
    "an object of another class": lambda: TABLE.from_object(object(), ctypes.c_void_p()),
    "a borrowed descriptor": lambda: TABLE.borrow(READ_ONLY, DLTensor()),
}


@pytest.mark.parametrize("refused", REFUSALS.values(), ids=REFUSALS)
def test_refusals_leave_no_memory_behind(refused):
    # Between two functions of PyO3, which would release what waits for one. NumPy's and ctypes'
    # first calls allocate.
    for calls in (100, 50_000):
        before = sys.getallocatedblocks()
        for _ in range(calls):
            with contextlib.suppress(BufferError, OverflowError, TypeError):
                refused()
                pytest.fail("not refused")
        grown = sys.getallocatedblocks() - before
    assert grown < 1000
