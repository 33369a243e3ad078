"""The table of borrows that extension modules share: those of one version, beside other versions.

The stub of a third module is memory of this program, with the layout of a table
(`ffi/borrow/shared.rs`).
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("dlbridge_example", reason="the example extension is not installed")
pytestmark = pytest.mark.skipif(sys.maxsize < 2**32, reason="the layout is that of 64 bits")

PROGRAM = """
import ctypes, sys

import numpy as np

SIZE, VERSION, WRITE = 16448, 5, 3
room = ctypes.create_string_buffer(SIZE + 64)
address = -(-ctypes.addressof(room) // 64) * 64
words = (ctypes.c_size_t * (SIZE // 8)).from_address(address)
make = ctypes.pythonapi.PyCapsule_New
make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
is_valid = ctypes.pythonapi.PyCapsule_IsValid
is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
interpreter = ctypes.pythonapi.PyInterpreterState_Get
state = ctypes.pythonapi.PyInterpreterState_GetDict
interpreter.restype, state.restype = ctypes.c_void_p, ctypes.py_object
state.argtypes = [ctypes.c_void_p]
state = state(interpreter())
names = []

def publish(key, name):
    names.append(name)
    state[f"dlbridge.borrows.{key}"] = make(address, name, None)

x = np.arange(3, dtype=np.float32)
start = x.ctypes.data
# The last number of a borrow is that of the slots; the first slot writes the array.
words[1:4], words[5] = [1, 1, 1], 256
words[8:11] = [WRITE, start, start + x.nbytes]
before = bytes(words)

def reads():
    import dlbridge
    import dlbridge_example

    calls = [lambda: dlbridge_example.norm(x), lambda: dlbridge.from_dlpack(x).tolist()]
    for call in calls:
        try:
            call()
            yield True
        except TypeError as error:
            assert "writes a part" in str(error), error
            yield False
"""

SHARED = """
publish(VERSION, b"dlbridge.borrows.5")
assert list(reads()) == [False, False]
# It ends: the state counts the borrows of its slot.
words[8], words[2] = 8, 0
assert list(reads()) == [True, True]
"""

OLDER = """
publish(VERSION - 1, b"dlbridge.borrows.4")
assert list(reads()) == [True, True]
assert bytes(words) == before
assert is_valid(state["dlbridge.borrows.5"], b"dlbridge.borrows.5")
"""

NEWER_BY_NAME_ALONE = """
publish(VERSION, b"dlbridge.borrows.6")
assert list(reads()) == [True, True]
assert bytes(words) == before
"""

# An error of the dict itself is no lack of memory. Without its cause, an import goes on.
ERROR_OF_THE_DICT = """
class Key(str):
    __hash__ = str.__hash__

    def __eq__(self, other):
        raise KeyError("as asked")

key = Key(f"dlbridge.borrows.{VERSION}")
state[key] = None
try:
    import dlbridge
except RuntimeError as error:
    while error.__cause__:
        error = error.__cause__
    assert error.args == ("as asked",), error
else:
    raise AssertionError("no error")
del state[key]
import dlbridge

assert dlbridge.from_dlpack(x).tolist() == [0, 1, 2]
"""

# What an import raises says nothing of the table: with one of its own, a module misses borrows.
NO_IMPORT = """
import builtins

publish(VERSION, b"dlbridge.borrows.5")
own = builtins.__import__
asked = []

def refuse(name, globals=None, locals=None, fromlist=(), level=0):
    # As C code imports; Python's own `import sys` goes on.
    if name == "sys" and isinstance(fromlist, list):
        asked.append(name)
        raise KeyboardInterrupt
    return own(name, globals, locals, fromlist, level)

builtins.__import__ = refuse
assert list(reads()) == [False, False]
assert not asked
"""


# No module of Python's is asked, whatever is in `sys.modules`.
NO_SYS = """
publish(VERSION, b"dlbridge.borrows.5")
other = {other}
if other is None:
    del sys.modules["sys"]
else:
    sys.modules["sys"] = other

import dlbridge_example

sys.modules["sys"] = sys
assert list(reads()) == [False, False]
words[8], words[2] = 8, 0
assert list(reads()) == [True, True]
"""


@pytest.mark.parametrize("other", ["None", "object()", "5"])
def test_the_table_is_found_without_sys(other):
    """A module that could not ask for the table of borrows (no `sys` in `sys.modules`) kept
    memory that Python had as well, and read arguments, beside a module that knew the table and
    wrote them."""
    command = [sys.executable, "-c", PROGRAM + NO_SYS.format(other=other)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# Each interpreter has a dict of its own: a table there would be a second one of the process.
OTHER_INTERPRETER = """
import _testcapi

publish(VERSION, b"dlbridge.borrows.5")
OTHER = f'''
import ctypes
import dlbridge_example

x = (ctypes.c_float * 3).from_address({start})
for function in dlbridge_example.norm, dlbridge_example.normalise:
    try:
        function(x)
        print("done", end=" ")
    except TypeError as error:
        assert "writes a part" in str(error), error
        print("refused", end=" ")
interpreter = ctypes.pythonapi.PyInterpreterState_Get
state = ctypes.pythonapi.PyInterpreterState_GetDict
interpreter.restype, state.restype = ctypes.c_void_p, ctypes.py_object
state.argtypes = [ctypes.c_void_p]
assert not any(str(name).startswith("dlbridge") for name in state(interpreter()))
'''
# What one module writes in the main interpreter, a second one sees in others, which are its first.
assert _testcapi.run_in_subinterp(OTHER) == 0
words[8], words[2] = 8, 0
assert _testcapi.run_in_subinterp(OTHER) == 0
assert np.allclose(x, np.arange(3) / 5**0.5)
assert list(reads()) == [True, True]
"""


def test_the_table_is_that_of_the_main_interpreter():
    """An extension module whose first borrow was in a sub-interpreter made a second table of
    borrows there: other modules did not see what it wrote. Later, on Python 3.11, a read there
    was seen by no other module."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    command = [sys.executable, "-c", PROGRAM + OTHER_INTERPRETER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "refused refused done done "), done.stderr


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(SHARED, id="one version shares"),
        pytest.param(OLDER, id="an older one is ignored"),
        pytest.param(NEWER_BY_NAME_ALONE, id="another name is ignored"),
        pytest.param(NO_IMPORT, id="the first borrow imports nothing"),
        pytest.param(ERROR_OF_THE_DICT, id="an error of the dict is raised"),
    ],
)
def test_modules_share_the_table_of_their_version_alone(program):
    """Nothing compared the layout of the shared table of borrows with the name by which extension
    modules find it."""
    command = [sys.executable, "-c", PROGRAM + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# A stack of this size does not exist, so no thread starts.
NO_THREAD = """
import _testcapi

OTHER = '''
try:
    import dlbridge_example
except Exception as error:
    while error.__cause__ is not None:
        error = error.__cause__
    assert type(error) is MemoryError and "a thread" in str(error), error
    print("refused")
'''
assert _testcapi.run_in_subinterp(OTHER) == 0
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it reserves the stack later")
def test_a_sub_interpreter_without_a_thread_for_the_table_raises():
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    command = [sys.executable, "-c", NO_THREAD]
    variables = {**os.environ, "RUST_MIN_STACK": str(1 << 50)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=variables)
    assert (done.returncode, done.stdout, done.stderr) == (0, "refused\n", "")


# What C calls there, without a function of PyO3 in between, waits for no other interpreter.
CALLED_BY_C = """
import _testcapi

OTHER = '''
import dlbridge
import dlbridge_example

image = dlbridge_example.Image(2, 2)
assert memoryview(image).nbytes == 12
assert dlbridge.from_dlpack(image).shape == (2, 2, 3)
image.__arrow_c_array__()
try:
    image.__dlpack__(other=1)
except TypeError:
    print("raised")
'''
assert _testcapi.run_in_subinterp(OTHER) == 0
"""


def test_a_class_in_a_sub_interpreter_waits_for_no_other():
    """On Python 3.11, a class with DLPack waited for ever in a sub-interpreter, for the GIL that
    its own thread held. A sub-interpreter that could start no thread got a panic."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    command = [sys.executable, "-c", CALLED_BY_C]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (0, "raised\n"), done.stderr
