"""What several threads share, used by all of them at once.

On a free-threaded build they really run at once; elsewhere this shows less, but not nothing.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
import sysconfig

import numpy as np
import pytest

import dlbridge
import hostile
from dlpack_doctor.abi import USED, name_of
from hostile import Managed, Producer, producer_of
from support import arange, failures_in_step, failures_in_threads
from test_arrow import Made

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
THREADS = 8


no_double_release = hostile.no_double_release


@pytest.mark.skipif(not FREE_THREADED, reason="this build of Python has its global lock")
@pytest.mark.parametrize("module", ["dlbridge", "dlbridge_example"])
def test_importing_our_modules_leaves_the_gil_off(module):
    if module == "dlbridge_example":
        pytest.importorskip(module, reason="the example extension is not installed")
    script = f"import sys, {module}; print(sys._is_gil_enabled())"
    # A module that does not declare itself is a RuntimeWarning.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


@pytest.mark.skipif(not FREE_THREADED, reason="this build of Python has its global lock")
@pytest.mark.skipif(sys.version_info < (3, 14), reason="counts are deferred from Python 3.14 on")
def test_threads_do_not_compete_for_reference_counts():
    """The count of the class is fixed (3.14); those of functions and methods are deferred."""
    example = pytest.importorskip(
        "dlbridge_example", reason="the example extension is not installed"
    )
    if sys.version_info < (3, 15):
        assert sys._is_immortal(dlbridge.Tensor)
        assert sys._is_immortal(example.Image)
    # From the struct of the free-threaded 3.14 and 3.15: `_PyGC_BITS_DEFERRED`.
    bits_at, deferred = 11, 64
    for shared in (
        dlbridge.from_dlpack,
        example.norm,
        vars(dlbridge.Tensor)["__dlpack__"],
        vars(example.Image)["__dlpack__"],
    ):
        assert ctypes.c_uint8.from_address(id(shared) + bits_at).value & deferred, shared


def test_the_wheel_is_that_of_the_interpreter():
    file = dlbridge._native.__file__
    assert file is not None
    if sys.version_info >= (3, 15):
        # With and without the GIL.
        assert ".abi3t" in file
    elif FREE_THREADED:
        assert file.endswith(sysconfig.get_config_var("EXT_SUFFIX"))
    elif sys.platform != "win32":
        assert file.endswith(".abi3.so")


@pytest.mark.parametrize("legacy", [True, False])
def test_each_capsule_has_one_taker(legacy):
    made = [Managed(legacy=legacy) for _ in range(1000)]
    capsules = [one.capsule() for one in made]
    taken, refused = [], []

    def work(index):
        try:
            taken.append(dlbridge.from_dlpack(capsules[index]))
        except BufferError as error:
            assert "consumed already" in str(error)
            refused.append(index)

    assert failures_in_step(2, len(made), work) == []
    assert (len(taken), len(refused)) == (len(made), len(made))
    assert {tensor.data_ptr for tensor in taken} == {one.base for one in made}
    assert {name_of(capsule) for capsule in capsules} <= set(USED.values())
    capsules.clear()
    assert [one.releases for one in made] == [0] * len(made)
    taken.clear()
    assert [one.releases for one in made] == [1] * len(made)


def test_each_arrow_array_has_one_taker():
    made = [Made() for _ in range(1000)]
    answers = [one.__arrow_c_array__() for one in made]

    class Handed:
        def __init__(self, answer):
            self.answer = answer

        def __arrow_c_array__(self, requested_schema=None):
            return self.answer

    taken, refused = [], []

    def work(index):
        try:
            taken.append(dlbridge.from_dlpack(Handed(answers[index])))
        except BufferError as error:
            assert "found a released one" in str(error)
            refused.append(index)

    assert failures_in_step(2, len(made), work) == []
    assert (len(taken), len(refused)) == (len(made), len(made))
    assert [one.released["array"] for one in made] == [0] * len(made)
    taken.clear()
    answers.clear()
    assert [one.released for one in made] == [{"schema": 1, "array": 1}] * len(made)


def test_types_come_and_go_while_others_are_looked_up():
    """The tables of types are filled by all threads; each has its own types, which die."""
    array = np.arange(3, dtype="float32")

    def work():
        for _ in range(300):
            kind = type("Passing", (Producer,), {})
            made = Managed()
            tensor = dlbridge.from_dlpack(kind(lambda made=made, **_: made.capsule()))
            assert (tensor.data_ptr, tensor.shape) == (made.base, (3,))
            with pytest.raises(TypeError, match=r"expected an array .*, found "):
                dlbridge.from_dlpack(type("Plain", (), {})())
            assert dlbridge.inspect(array).protocol == "NumPy C API"
            assert dlbridge.inspect(tensor).protocol == "C exchange API"
            del tensor
            assert made.releases == 1

    assert failures_in_threads(THREADS, work) == []


def test_a_shared_array_is_read_and_its_references_return():
    arrays = [np.arange(64, dtype=dtype).reshape(8, 8) for dtype in ("int8", "float64")]
    arrays += [arrays[0][::2, ::-1], arrays[1].T]
    arrays[2].flags.writeable = False
    references = [sys.getrefcount(array) for array in arrays]

    def work():
        for _ in range(2000):
            for array in arrays:
                tensor = dlbridge.from_dlpack(array)
                steps = [step // array.itemsize for step in array.strides]
                assert (list(tensor.shape), list(tensor.strides)) == ([*array.shape], steps)
                assert tensor.readonly == (not array.flags.writeable)

    assert failures_in_threads(THREADS, work) == []
    assert [sys.getrefcount(array) for array in arrays] == references


def test_the_callers_kind_is_found_by_all():
    """Frameworks' functions are remembered for their types, by whichever thread comes first."""
    example = pytest.importorskip(
        "dlbridge_example", reason="the example extension is not installed"
    )
    strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
    tensor = arange(8, dtype="float32")
    array, other = np.zeros(1, "float32"), strict.zeros(1, dtype=strict.float32)

    def work():
        for _ in range(500):
            assert example.convert(array, tensor).ctypes.data == tensor.data_ptr
            assert example.convert(other, tensor)._array.ctypes.data == tensor.data_ptr
            derived = type("Derived", (np.ndarray,), {})
            assert example.convert(array.view(derived), tensor).ctypes.data == tensor.data_ptr
            assert example.scale(array, 2.0).tolist() == [0.0]

    assert failures_in_threads(THREADS, work) == []


def test_all_threads_borrow_export_copy_and_release_one_tensor():
    made = Managed(shape=[64])
    shared = [dlbridge.from_dlpack(producer_of(made))]
    wanted = np.arange(64, dtype="float32").tobytes()

    def work():
        for _ in range(500):
            tensor = shared[0]
            with memoryview(tensor) as view:
                assert view.tobytes() == wanted
            capsules = tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 3))
            assert dlbridge.from_dlpack(capsules[1]).data_ptr == made.base
            assert memoryview(dlbridge.from_dlpack(tensor, copy=True)).tobytes() == wanted
            assert "shape=(64,), dtype=" in repr(tensor)

    assert failures_in_threads(THREADS, work) == []
    assert made.releases == 0
    shared.clear()
    assert made.releases == 1


def test_owners_go_on_threads_that_python_does_not_know_of():
    """A deleter runs while Python is detached, beside threads that work."""
    array = np.arange(16, dtype="int32")
    references = sys.getrefcount(array)
    take = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_SetName", ctypes.pythonapi)
    )
    name, used = (ctypes.c_char_p(each) for each in (hostile.VERSIONED, USED[hostile.VERSIONED]))

    def work():
        for _ in range(1000):
            capsule = dlbridge.from_dlpack(array).__dlpack__(max_version=(1, 3))
            address = take(capsule, name)
            assert rename(capsule, used) == 0
            deleter = hostile.DLManagedTensorVersioned.from_address(address).deleter
            # ctypes detaches for the length of a call of this kind.
            hostile.Deleter(deleter)(address)

    assert failures_in_threads(THREADS, work) == []
    assert sys.getrefcount(array) == references


BUSY = """
import threading, time
import numpy as np
import dlbridge

array = np.arange(64, dtype="float32")

def work():
    kept = []
    while True:
        kept.append(np.from_dlpack(dlbridge.from_dlpack(dlbridge.from_dlpack(array))))
        kept.append(dlbridge.from_dlpack(array).__dlpack__())
        del kept[:-100]

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""


def test_threads_that_are_at_work_at_the_interpreters_exit_do_no_harm():
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_threads_that_write_and_export_the_same_array_do_not_meet():
    """Each element is divided by the same number, so that a copy of other elements met a writer."""
    example = pytest.importorskip(
        "dlbridge_example", reason="the example extension is not installed"
    )
    array = np.full(5_000, 2, "float32")
    tensor, numbers = dlbridge.from_dlpack(array), itertools.count()
    outcomes = {"written": 0, "refused": 0, "read": 0}

    def work():
        for turn in range(200):
            source = (array, tensor, memoryview(array))[turn % 3]
            try:
                if next(numbers) % 2:
                    example.normalise(source)
                    outcomes["written"] += 1
                else:
                    copy = example.scale(source, 1.0)
                    first = np.from_dlpack(dlbridge.from_dlpack(copy))
                    assert (first == first[0]).all()
                    outcomes["read"] += 1
            except TypeError as error:
                assert "another" in str(error)
                outcomes["refused"] += 1

    assert failures_in_threads(THREADS, work) == []
    assert outcomes["written"] > 0 and outcomes["read"] > 0
    assert (array == array[0]).all()
