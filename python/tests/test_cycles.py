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


def keeper(kind):
    if kind == "bytearray":
        return Bytes(800)
    if kind == "__buffer__":
        if sys.version_info < (3, 12):
            pytest.skip("classes in Python have buffers from 3.12 on")
        return HasBuffer()
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.zeros(100).as_subclass(type("Derived", (torch.Tensor,), {}))


KEEPERS = pytest.mark.parametrize("kind", ["bytearray", "__buffer__", "torch"])


@KEEPERS
def test_an_object_that_keeps_a_tensor_over_its_own_memory_is_collected(kind):
    x = keeper(kind)
    x.tensor = dlbridge.from_dlpack(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


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
