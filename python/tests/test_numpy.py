"""NumPy arrays, which are read where NumPy's C API has their fields."""

import gc
import sys
import threading

import numpy as np
import pytest

import dlbridge
from frameworks.numpy_arrays import DTYPES, LAYOUTS


class Sub(np.ndarray):
    """A subclass is asked through `__dlpack__`, which it may override."""


def by_dlpack(array):
    """What the array's own `__dlpack__` says."""
    return dlbridge.inspect(array.view(Sub))


def told(description):
    keys = ("dtype", "device", "shape", "data_ptr", "nbytes", "readonly", "copied")
    return {key: getattr(description, key) for key in keys}


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_type_is_named_as_numpy_names_it(dtype):
    array = np.zeros((2, 3), dtype)
    description = dlbridge.inspect(array)
    assert description.protocol == "NumPy C API"
    assert told(description) == told(by_dlpack(array))
    assert description.strides == by_dlpack(array).strides


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_is_told_as_numpy_tells_it(name):
    array = LAYOUTS[name]
    description = dlbridge.inspect(array)
    assert description.protocol == "NumPy C API"
    # Before 2.1, NumPy cannot say read-only through DLPack, and refuses.
    if array.flags.writeable or np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        assert told(description) == told(by_dlpack(array))
    if array.size:
        assert description.strides == tuple(step // array.itemsize for step in array.strides)


def test_a_read_only_array_stays_so():
    array = np.arange(3.0)
    array.flags.writeable = False
    assert dlbridge.inspect(array).readonly
    assert not dlbridge.inspect(np.arange(3.0)).readonly


@pytest.mark.parametrize(
    "array",
    [
        np.arange(3, dtype=">f4"),
        np.array(["a", "b"]),
        np.array([None, 1]),
        np.zeros(3, "datetime64[s]"),
        np.zeros(3, [("x", "f4"), ("y", "f4")]),
        np.zeros(3, "longdouble"),
        np.zeros(3, [("x", "f4"), ("y", "i1")])["x"],
    ],
    ids=["other byte order", "text", "objects", "times", "records", "long double", "odd strides"],
)
def test_what_dlpack_has_no_word_for_is_refused_in_numpys_own_words(array):
    with pytest.raises(BufferError) as ours:
        dlbridge.from_dlpack(array)
    with pytest.raises(BufferError) as numpys:
        array.__dlpack__(max_version=(1, 3))
    assert str(ours.value) == str(numpys.value)


def test_a_subclass_is_asked():
    asked = []

    class Asked(np.ndarray):
        def __dlpack__(self, **keywords):
            asked.append(keywords)
            return super().__dlpack__(**keywords)

    description = dlbridge.inspect(np.zeros(3).view(Asked))
    assert description.protocol.startswith("__dlpack__")
    assert asked == [{"max_version": (1, 3)}]


def test_the_array_lives_as_long_as_the_tensor_and_no_longer():
    array = np.arange(5.0)
    before = sys.getrefcount(array)
    tensor = dlbridge.from_dlpack(array)
    assert sys.getrefcount(array) == before + 1
    with pytest.raises(ValueError, match="resize"):
        array.resize(10**6)
    second = np.from_dlpack(tensor)
    del tensor
    gc.collect()
    assert sys.getrefcount(array) == before + 1
    assert second.ctypes.data == array.ctypes.data
    del second
    assert sys.getrefcount(array) == before


def test_the_array_may_be_released_by_any_thread():
    array = np.arange(5.0)
    before = sys.getrefcount(array)
    held = [dlbridge.from_dlpack(array) for _ in range(100)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert sys.getrefcount(array) == before
