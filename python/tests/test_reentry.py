"""Python code that runs inside a call: it may call the same function, and what it raises passes
through if it refuses nothing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import dlbridge
import test_exchange_api as api

HOOKED = """
import builtins, faulthandler
import numpy as np
import dlbridge

faulthandler.dump_traceback_later(20, exit=True)
imports, inner = builtins.__import__, []

def hooked(name, *rest, **named):
    if name in ("numpy._core._multiarray_umath", "dlbridge._channel") and len(inner) < 3:
        inner.append(name)
        call()
    return imports(name, *rest, **named)

builtins.__import__ = hooked
"""


@pytest.mark.parametrize(
    "call",
    [
        "dlbridge.from_dlpack(np.ones(3)).tolist() == [1, 1, 1]",
        "dlbridge.zeros((3,)).numpy().tolist() == [0, 0, 0]",
        "dlbridge.channel()[0].kept == (0, 0)",
    ],
)
def test_an_import_hook_calls_the_function_that_imports(call):
    """It waited for itself."""
    program = f"{HOOKED}\ndef call(): assert {call}\ncall()\nassert inner, 'nothing was imported'"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


@pytest.mark.parametrize(
    "use",
    [
        "dlbridge.from_dlpack(calls)",
        "calls.__dlpack__()",
        "calls.__dlpack_device__()",
        "np.from_dlpack(calls)",
        "memoryview(calls)",
        "calls.__arrow_c_array__()",
    ],
)
def test_a_class_that_imports_itself_raises_a_recursion_error(use):
    """The stack overflowed. A second way at each level would double the work each time."""
    program = f"""
import faulthandler
import threading
import numpy as np
import dlbridge
from dlbridge import _native

faulthandler.dump_traceback_later(60, exit=True)
itself = []
calls = _native._Calls(lambda: itself[0])
itself.append(calls)
caught = []

def call():
    try:
        {use}
    except RecursionError as error:
        assert "imports itself" in str(error), error
        caught.append(error)

call()
# The stack of a thread, as other systems make it.
threading.stack_size(768 * 1024)
thread = threading.Thread(target=call)
thread.start()
thread.join()
assert len(caught) == 2

chain = np.ones(3)
for _ in range(30):
    chain = _native._Calls(lambda chain=chain: chain)
assert dlbridge.from_dlpack(chain).tolist() == [1, 1, 1]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def check_recursion_error(program, call):
    """Checks that a call after a program raises the error of the limit, on a small stack."""
    program += f"""
caught = []

def call():
    try:
        {call}
    except RecursionError as error:
        caught.append(str(error))

threading.stack_size(768 << 10)
thread = threading.Thread(target=call)
thread.start()
thread.join()
assert "inside one another" in caught[0], caught
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, (done.returncode, done.stderr)


@pytest.mark.parametrize("protocol", ["__dlpack__", "__array_interface__"])
def test_a_python_class_that_imports_itself_raises_a_recursion_error(protocol):
    """Python's limit let 1,000 imports overflow the stack of a thread."""
    program = f"""
import threading
import dlbridge

class Itself:
    def {protocol}(self, **_):
        return dlbridge.from_dlpack(self).{protocol}

    if "{protocol}" == "__dlpack__":
        __dlpack_device__ = lambda self: (1, 0)
    else:
        {protocol} = property({protocol})

"""
    check_recursion_error(program, "dlbridge.from_dlpack(Itself())")


CHUNKS = """
class Itself:
    def __arrow_c_stream__(self, requested_schema=None):
        return again(self)
"""

GRADIENTS = """
class Itself:
    __dlpack_c_exchange_api__ = dlbridge.Tensor.__dlpack_c_exchange_api__
    requires_grad = property(again)
"""

MASKED = """
import numpy as np

class Masked(np.ma.MaskedArray):
    dtype = property(again)

Itself = lambda: np.arange(3).view(Masked)
"""


@pytest.mark.parametrize(
    "itself",
    [
        pytest.param(CHUNKS, id="chunks"),
        pytest.param(GRADIENTS, id="requires_grad"),
        pytest.param(MASKED, id="masked"),
    ],
)
def test_an_object_that_is_asked_and_imports_itself_raises_a_recursion_error(itself):
    program = f"""
import threading
import dlbridge

def again(x):
    return dlbridge.from_dlpack(x, copy=True)

{itself}
"""
    check_recursion_error(program, "again(Itself())")


PASSING = [KeyboardInterrupt, SystemExit, MemoryError, RecursionError]


def raising(error):
    def function(*_, **__):
        raise error

    return function


class Refuses:
    """A producer whose other protocols are asked after its `__dlpack__`."""

    def __dlpack__(self, **_):
        raise BufferError("refused")


def number(error):
    return type("Number", (), {"__index__": raising(error)})()


def described(**entries):
    interface = {"version": 3, "shape": (2,), "typestr": "<f8", "data": (64, False), **entries}
    return type("Interface", (), {"__array_interface__": interface})()


def on_a_device(**entries):
    interface = {"version": 3, "shape": (2,), "typestr": "<f8", "data": (64, False), **entries}
    return type("Interface", (), {"__cuda_array_interface__": interface})()


def with_dtype(error):
    return type("Dtype", (Refuses,), {"dtype": property(raising(error))})()


def with_buffer(error):
    kind = type("Buffer", (Refuses, bytearray), {"__buffer__": raising(error)})
    try:
        memoryview(kind())
    except error:
        return kind()
    pytest.skip("before Python 3.12, classes in Python have no __buffer__")


def with_device(error):
    def device(_):
        return (number(error), 0)

    return type("Device", (Refuses,), {"__dlpack_device__": device})()


def without_a_copy(error):
    array = np.ones(2)

    def export(_, *, copy=None, **keywords):
        if copy is not None or "dl_device" in keywords:
            raise error
        return array.__dlpack__(**keywords)

    return type("Shared", (), {"__dlpack__": export})()


def with_a_question(error):
    ours = api.Table.from_address(
        api.pointer(dlbridge.Tensor.__dlpack_c_exchange_api__, api.CAPSULE_NAME)
    )
    kind = api.producer(api.working(ours))
    kind.requires_grad = property(raising(error))
    return kind()


IMPORTS = {
    "a dtype": lambda error: dlbridge.from_dlpack(with_dtype(error)),
    "a buffer": lambda error: dlbridge.from_dlpack(with_buffer(error)),
    "a version": lambda error: dlbridge.from_dlpack(described(version=number(error))),
    "a shape": lambda error: dlbridge.from_dlpack(described(shape=(number(error),))),
    "an address": lambda error: dlbridge.from_dlpack(described(data=(number(error), False))),
    "an offset": lambda error: dlbridge.from_dlpack(
        described(data=bytearray(64), offset=number(error))
    ),
    "a stream of an interface": lambda error: dlbridge.from_dlpack(
        on_a_device(stream=number(error))
    ),
    "a stream": lambda error: dlbridge.from_dlpack(np.ones(2), stream=number(error)),
    "a device": lambda error: dlbridge.from_dlpack(with_device(error), stream=1),
    "a copy": lambda error: dlbridge.from_dlpack(without_a_copy(error), device="cuda"),
    "a question": lambda error: dlbridge.from_dlpack(with_a_question(error)),
}


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.__name__)
@pytest.mark.parametrize("run", IMPORTS.values(), ids=IMPORTS)
def test_an_exception_that_refuses_nothing_leaves_an_import(run, error):
    """A `KeyboardInterrupt`, `SystemExit`, `MemoryError` or `RecursionError` inside another
    protocol, a question to a table's object or an entry of an interface became a `BufferError`,
    or was dropped; any exception of a pickle's import said "install dlbridge"."""
    with pytest.raises(error):
        run(error)


@pytest.mark.parametrize("error", [TypeError, ValueError, RuntimeError, BufferError])
def test_the_first_refusal_is_raised(error):
    with pytest.raises(BufferError, match="refused"):
        dlbridge.from_dlpack(with_dtype(error))


def test_an_array_is_not_changed_while_it_is_read():
    """The first array with another object as its base made the extension's class `Tensor`: after
    the array's fields were read, and by Python code, which freed the memory (up to Python 3.11)."""
    pytest.importorskip("dlbridge_example", reason="the example extension is not installed")
    program = """
import gc
import numpy as np
import dlbridge_example

class Changes:
    def __init__(self):
        self.itself = self

    def __del__(self):
        array.__setstate__((1, (1,), array.dtype, False, bytes(4)))

dlbridge_example.norm(np.ones(1, "float32"))
array = np.frombuffer(bytearray(np.ones(1 << 20, "float32").tobytes()), "float32")
gc.disable()
Changes()
gc.set_threshold(1)
gc.enable()
norm = dlbridge_example.norm(array)
assert norm in (0, 1 << 10), norm
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
