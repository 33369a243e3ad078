"""Tensors as NumPy arrays, which NumPy's C API makes: as `numpy.from_dlpack` would, and quicker."""

from __future__ import annotations

import gc
import sys
import threading

import numpy as np
import pytest

import dlbridge
from frameworks.numpy_arrays import BASE, DTYPES, LAYOUTS
from threads import failures_in_threads

example = pytest.importorskip("dlbridge_example", reason="the example extension is not installed")

LIKE = np.zeros(1)
# Before 2.1, NumPy cannot say read-only through DLPack, and refuses.
KEEPS_READ_ONLY = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def convert(source) -> np.ndarray:
    return example.convert(LIKE, source)


def told(array: np.ndarray) -> tuple:
    address = array.__array_interface__["data"][0]
    flags = array.flags
    layout = (flags.c_contiguous, flags.f_contiguous, flags.aligned, flags.writeable)
    return (type(array), array.dtype, array.shape, array.strides, address, layout, flags.owndata)


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_type_is_what_from_dlpack_makes_of_it(dtype):
    source = np.arange(6).reshape(2, 3).astype(dtype)
    array = convert(source)
    assert told(array) == told(np.from_dlpack(dlbridge.from_dlpack(source)))
    assert array.dtype == source.dtype
    assert array.tolist() == source.tolist()


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_is_what_from_dlpack_makes_of_it(name):
    source = LAYOUTS[name]
    array = convert(source)
    assert (array.shape, array.tolist()) == (source.shape, source.tolist())
    if source.flags.writeable or KEEPS_READ_ONLY:
        assert told(array) == told(np.from_dlpack(dlbridge.from_dlpack(source)))
    if source.size:
        assert array.ctypes.data == source.ctypes.data
        assert array.flags.writeable == source.flags.writeable


def test_misaligned_memory_is_known_to_be():
    source = np.frombuffer(bytearray(17), dtype="u1")[1:].view("f4")
    array = convert(source)
    assert array.ctypes.data % 4 != 0
    assert not array.flags.aligned


def test_read_only_memory_cannot_be_made_writable():
    source = np.arange(3.0)
    source.flags.writeable = False
    array = convert(source)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_what_one_writes_the_other_reads():
    source = np.arange(3.0)
    array = convert(source)
    array[1] = 7
    assert source.tolist() == [0, 7, 2]


def test_the_memory_lives_as_long_as_an_array_over_it():
    source = np.arange(5.0)
    before = sys.getrefcount(source)
    array = convert(source)
    assert sys.getrefcount(source) == before + 1
    part = array[1:3]
    del array
    gc.collect()
    assert sys.getrefcount(source) == before + 1
    assert part.tolist() == [1, 2]
    del part
    assert sys.getrefcount(source) == before


def test_the_memory_of_an_array_cannot_be_freed_under_it():
    array = convert(np.arange(3.0))
    while isinstance(array.base, np.ndarray):
        array = array.base
    with pytest.raises(TypeError, match="capsule"):
        dlbridge.from_dlpack(array.base)
    assert array.tolist() == [0, 1, 2]


def test_an_array_that_is_exported_and_imported_again_stays_in_place():
    source = array = BASE.copy()
    for _ in range(100):
        array = convert(array)
    assert array.ctypes.data == source.ctypes.data
    assert array.tolist() == source.tolist()


def test_a_type_that_numpy_has_not_is_refused_in_its_own_words():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensor = dlbridge.from_dlpack(torch.zeros(3, dtype=torch.bfloat16))
    with pytest.raises((BufferError, RuntimeError)) as numpys:
        np.from_dlpack(tensor)
    with pytest.raises(type(numpys.value)) as ours:
        convert(tensor)
    assert str(ours.value) == str(numpys.value)


def test_an_array_of_a_subclass_makes_one_of_numpys_own():
    class Sub(np.ndarray):
        pass

    assert type(example.convert(np.zeros(1).view(Sub), np.ones(2))) is np.ndarray


def test_an_exception_on_its_way_is_not_lost():
    source = np.arange(3.0)
    before = sys.getrefcount(source)

    def fails():
        array = convert(source)
        array[0] = 5
        raise KeyError("on its way")

    with pytest.raises(KeyError, match="on its way"):
        fails()
    gc.collect()
    assert (sys.getrefcount(source), source[0]) == (before, 5)


def test_any_thread_may_make_and_release_arrays():
    source = np.arange(8.0)
    before = sys.getrefcount(source)

    def work():
        for _ in range(2000):
            assert convert(source)[7] == 7

    assert failures_in_threads(8, work) == []
    held = [convert(source) for _ in range(100)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert sys.getrefcount(source) == before
