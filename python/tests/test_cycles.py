"""Objects that keep a tensor over their own memory: the garbage collector frees them.

Memory that is in use stays."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
import pytest

import dlbridge


class Bytes(bytearray):
    """An object with a buffer and attributes."""


class HasBuffer:
    """A class in Python with a buffer."""

    def __buffer__(self, flags):
        return memoryview(bytearray(800))


class HasInterface:
    """A class with an array interface: to an address, or to a buffer."""

    def __init__(self, data=None):
        self.data = data or np.zeros(100).ctypes

    @property
    def __array_interface__(self):
        is_buffer = isinstance(self.data, Bytes)
        data = self.data if is_buffer else (self.data.data, False)
        return {"version": 3, "shape": (100,), "typestr": "<f8", "data": data}


def keeper(kind):
    if kind == "ndarray":
        return np.zeros(100).view(type("Derived", (np.ndarray,), {}))
    if kind == "interface":
        return HasInterface()
    if kind == "interface of a buffer":
        x = Bytes(800)
        x.exporter = HasInterface(x)
        return x.exporter
    if kind == "bytearray":
        return Bytes(800)
    if kind == "__buffer__":
        if sys.version_info < (3, 12):
            pytest.skip("classes in Python have buffers from 3.12 on")
        return HasBuffer()
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.zeros(100).as_subclass(type("Derived", (torch.Tensor,), {}))


KINDS = ["ndarray", "interface", "interface of a buffer", "bytearray", "__buffer__", "torch"]
KEEPERS = pytest.mark.parametrize("kind", KINDS)


@KEEPERS
def test_an_object_that_keeps_a_tensor_over_its_own_memory_is_collected(kind):
    x = keeper(kind)
    x.tensor = dlbridge.from_dlpack(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


@KEEPERS
def test_an_object_that_keeps_rows_over_its_own_memory_is_collected(kind):
    x = keeper(kind)
    x.rows = iter(dlbridge.from_dlpack(x))
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


@KEEPERS
def test_the_collector_sees_a_tensor_that_keeps_an_object(kind):
    assert gc.is_tracked(dlbridge.from_dlpack(keeper(kind)))


def test_the_collector_does_not_see_tensors_over_memory_of_rust():
    # PyO3 makes the first object.
    x = dlbridge.zeros((2, 3))
    new = [
        dlbridge.zeros((2, 3)),
        dlbridge.from_bytes(b"abcd"),
        dlbridge.from_dlpack(x),
        dlbridge.from_dlpack(np.zeros(3), copy=True),
        x[1:],
        x.T,
        x.reshape(6),
        x.view("int64"),
        x.copy(),
    ]
    assert [gc.is_tracked(one) for one in new] == [False] * len(new)


@KEEPERS
@pytest.mark.parametrize("keep", ["array", "part", "capsule", "view"])
def test_memory_in_use_is_not_collected_with_a_cycle(kind, keep):
    x = keeper(kind)
    x.tensor = dlbridge.from_dlpack(x)
    if keep == "array":
        kept = np.from_dlpack(x.tensor)
    elif keep == "part":
        kept = x.tensor[1:]
    elif keep == "capsule":
        kept = x.tensor.__dlpack__(max_version=(1, 3))
    else:
        kept = memoryview(x.tensor)
    gone = weakref.ref(x)
    del x
    for _ in range(3):
        gc.collect()
    assert gone() is not None
    assert gone().tensor.shape
    del kept
    gc.collect()
    assert gone() is None
