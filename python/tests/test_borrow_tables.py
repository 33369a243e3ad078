"""The table of borrows that extension modules share by its functions.

The third module is this program: it calls the functions in the capsule (`ffi/borrow/own.rs`).
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("dlbridge_example", reason="the example extension is not installed")

PROGRAM = """
import ctypes, sys

import numpy as np

import dlbridge

NAME = b"dlbridge.borrows"
interpreter = ctypes.pythonapi.PyInterpreterState_Get
state = ctypes.pythonapi.PyInterpreterState_GetDict
interpreter.restype, state.restype = ctypes.c_void_p, ctypes.py_object
state.argtypes = [ctypes.c_void_p]
state = state(interpreter())
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

x = np.arange(3, dtype=np.float32)
start = x.ctypes.data
# The range, and twice a comb of one tooth.
Bytes = ctypes.c_size_t * 6
bytes_of_x = Bytes(start, start + x.nbytes, 0, x.nbytes, 0, x.nbytes)
# Kind and whether it is kept; bytes.
other = (ctypes.c_size_t * 7)()

def reads():
    import dlbridge_example

    calls = [lambda: dlbridge_example.norm(x), lambda: dlbridge.from_dlpack(x).tolist()]
    for call in calls:
        try:
            call()
            yield True
        except TypeError as error:
            assert "writes a part" in str(error), error
            yield False

def functions():
    word, number = ctypes.c_void_p, ctypes.c_size_t
    ask = ctypes.CFUNCTYPE(number, word, word)
    kinds = [ask, ask, ctypes.CFUNCTYPE(number, word, number)]
    kinds += [ctypes.CFUNCTYPE(None, number, number), ctypes.CFUNCTYPE(ctypes.c_bool)]
    words = (number * 6).from_address(pointer(state[NAME.decode()], NAME))
    assert words[0] == 1
    return [kind(address) for kind, address in zip(kinds, words[1:])]
"""

SHARED = """
# The first tensor makes the class, and finds the table.
dlbridge.from_dlpack(x)
read, write, keep, end, has_writers = functions()
writer = write(bytes_of_x, other)
assert writer % 4 == 0 and writer != 0
assert has_writers()
assert list(reads()) == [False, False]
assert read(bytes_of_x, other) == 0
assert other[0] & 0xFFFFFFFF == 1 and other[1] == start
end(writer, start)
assert not has_writers()
assert list(reads()) == [True, True]

import dlbridge_example

kept = keep(bytes_of_x, read(bytes_of_x, other))
try:
    dlbridge_example.normalise(x)
except TypeError as error:
    assert "a tensor that Rust keeps" in str(error), error
else:
    raise AssertionError("written")
end(kept, start)
dlbridge_example.normalise(x)
"""

# An error of the dict itself is no lack of memory. Without its cause, an import goes on.
ERROR_OF_THE_DICT = """
class Key(str):
    __hash__ = str.__hash__

    def __eq__(self, other):
        raise KeyError("as asked")

state.pop(NAME.decode(), None)
key = Key(NAME.decode())
state[key] = None
try:
    import dlbridge_example
except Exception as error:
    while error.__cause__:
        error = error.__cause__
    assert error.args == ("as asked",), error
else:
    raise AssertionError("no error")
del state[key]
import dlbridge_example

assert dlbridge_example.norm(x) > 2
"""

# What an import raises says nothing of the table: with one of its own, a module misses borrows.
NO_IMPORT = """
import builtins

dlbridge.from_dlpack(x)
own = builtins.__import__
asked = []

def refuse(name, globals=None, locals=None, fromlist=(), level=0):
    # As C code imports; Python's own `import sys` goes on.
    if name == "sys" and isinstance(fromlist, list):
        asked.append(name)
        raise KeyboardInterrupt
    return own(name, globals, locals, fromlist, level)

builtins.__import__ = refuse
functions()[1](bytes_of_x, other)
assert list(reads()) == [False, False]
assert not asked
"""


# No module of Python's is asked, whatever is in `sys.modules`.
NO_SYS = """
dlbridge.from_dlpack(x)
read, write, keep, end, has_writers = functions()
writer = write(bytes_of_x, other)
other = {other}
if other is None:
    del sys.modules["sys"]
else:
    sys.modules["sys"] = other

import dlbridge_example

sys.modules["sys"] = sys
assert list(reads()) == [False, False]
end(writer, start)
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


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(SHARED, id="one table for all modules"),
        pytest.param(NO_IMPORT, id="the first borrow imports nothing"),
        pytest.param(ERROR_OF_THE_DICT, id="an error of the dict is raised"),
    ],
)
def test_modules_share_the_functions_of_one_table(program):
    """Modules of two versions had a table each: one did not see what the other one wrote."""
    command = [sys.executable, "-c", PROGRAM + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


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
    its own thread held."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    command = [sys.executable, "-c", CALLED_BY_C]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (0, "raised\n"), done.stderr
