"""Small allocations that fail: an exception, and a `MemoryError` where no other one is due."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest


def test_an_error_without_memory_for_its_message_is_an_exception():
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


CALLS = {
    "import": "dlbridge.from_dlpack(x)",
    "import by a method": "dlbridge.from_dlpack(Producer())",
    "import of a new class": "dlbridge.from_dlpack(type('New', (Producer,), {})())",
    "import by an interface": "dlbridge.from_dlpack(Interface())",
    "import of bytes": "dlbridge.from_dlpack(bytes(16))",
    "import of ml_dtypes": "dlbridge.from_dlpack(narrow)",
    "copy": "dlbridge.from_dlpack(x, copy=True)",
    "zeros": "dlbridge.zeros((3, 4), dtype='float32')",
    "inspect": "dlbridge.inspect(x)",
    "repr": "repr(bfloat)",
    "numpy": "own.numpy()",
    "numpy of bfloat16": "bfloat.numpy()",
    "tolist": "bfloat.tolist()",
    "a part": "own[1:]",
    "a number": "own.item(1)",
    "shape": "own.shape, own.strides, own.dtype, own.device",
    "pickle": "pickle.dumps(own)",
    "unpickle": "pickle.loads(pickled)",
    "array interface": "own.__array_interface__",
    "np.asarray": "np.asarray(bfloat)",
    "export": "own.__dlpack__(max_version=(1, 0))",
    "memoryview": "memoryview(own)",
    "arrow": "own.__arrow_c_array__()",
    "device": "own.__dlpack_device__()",
}


def test_a_call_without_memory_raises_a_memory_error():
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    program = f"""
        import _testcapi
        import pickle
        import sys
        import ml_dtypes
        import numpy as np
        import dlbridge

        x, narrow = np.arange(3.0), np.zeros(3, ml_dtypes.bfloat16)
        own, bfloat = dlbridge.zeros(3), dlbridge.zeros(3, dtype="bfloat16")
        pickled = pickle.dumps(own)

        class Producer:
            def __dlpack__(self, **keywords):
                return x.__dlpack__(**keywords)

        class Interface:
            __array_interface__ = x.__array_interface__

        for name, call in {CALLS!r}.items():
            call = compile(call, name, "eval")
            eval(call)
            for first in range(80):
                try:
                    try:
                        _testcapi.set_nomemory(first, first + 1)
                        eval(call)
                    finally:
                        _testcapi.remove_mem_hooks()
                except (MemoryError, pickle.PicklingError):
                    pass
                except BaseException as error:
                    print(name, first, type(error).__name__, error)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr[-2000:]
