"""Allocations: small ones that fail, those that a refused call must not leave behind, and memory
for results on the host, which is not shown to Python while Rust writes it."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import dlbridge
from dlpack_doctor.abi import DLTensor
from test_exchange_api import CAPSULE_NAME, Table, pointer


def test_an_error_without_memory_for_its_message_is_an_exception():
    """An allocation that failed while a function or a method raised its error ended the process:
    PyO3 made the text there, and panicked where nothing catches."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    program = """
        import _testcapi
        import dlbridge

        tensor = dlbridge.zeros(3, dtype="bfloat16")
        dlpack = tensor.__dlpack__
        calls = [
            lambda: dlpack(unknown=1),
            lambda: dlpack(1),
            lambda: dlpack(dl_device=(2, 0)),
            lambda: dlpack(max_version="1"),
            lambda: memoryview(tensor),
            lambda: dlbridge.from_dlpack([1]),
            lambda: dlbridge.zeros(-2),
            lambda: dlbridge.zeros(2**62),
            lambda: tensor[9],
            lambda: tensor["x"],
            lambda: list(tensor),
            lambda: bool(tensor),
        ]
        for call in calls:
            try:
                call()
            except Exception:
                pass
        for call in calls:
            for first in range(40):
                try:
                    _testcapi.set_nomemory(first, first + 1)
                    call()
                except BaseException:
                    pass
                finally:
                    _testcapi.remove_mem_hooks()
        print("alive")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr[-2000:]


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
    """Errors of `__dlpack__` and of objects' other C entries stayed in PyO3's queue until a
    function of PyO3 ran: 38 MB after 300,000."""
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


def test_torch_shows_python_no_memory_that_rust_writes():
    """A mode (a profiler, functorch) could keep it, and see it change while Rust has a slice."""
    reason = "the example extension is not installed"
    example = pytest.importorskip("dlbridge_example", reason=reason)
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Keeping(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            seen.append(result)
            return result

    x = torch.ones(4096, 2)
    # The first import of a class calls functions of PyTorch.
    example.row_sums(x)
    with Keeping():
        sums = example.row_sums(x)
    assert [tensor for tensor in seen if isinstance(tensor, torch.Tensor)] == []
    assert type(sums) is torch.Tensor
    assert sums.data_ptr() % 64 == 0
    assert sums.sum() == 2 * 4096
