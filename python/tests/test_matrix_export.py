"""Tensors of every kind, given to every framework."""

from __future__ import annotations

import sys
import weakref

import pytest

import dlbridge
from frameworks.cases import ACCESSES, CONTIGUOUS, NATIVE, READONLY, WRITABLE, Case, cases, pack
from frameworks.kinds import Framework, matrix
from frameworks.quirks import EXPORT, expectation
from frameworks.raw import Producer, Shim, aligned, settled

pytestmark = pytest.mark.slow


def taken(framework: Framework) -> list[Case]:
    return cases(framework.dtypes, framework.taken_layouts, ACCESSES)


def foreign(framework: Framework) -> list[Case]:
    return cases(framework.foreign, framework.taken_layouts[:1], (WRITABLE,))


def contiguous(framework: Framework) -> list[Case]:
    layouts = [
        name for name in framework.taken_layouts if name in (*CONTIGUOUS, "row", "empty row")
    ]
    return cases(framework.dtypes, tuple(layouts), (WRITABLE,))


def everything(framework: Framework) -> list[Case]:
    return taken(framework) + foreign(framework)


@pytest.mark.parametrize(("framework", "case"), matrix(everything))
def test_a_tensor_is_seen_as_it_is(framework: Framework, case: Case):
    expected = expectation(framework.name, EXPORT, case)
    producer = Producer(case.versioned(), aligned(pack(case.storage, case.dtype)))
    pointer = producer.pointer
    tensor = dlbridge.from_dlpack(producer)
    assert tensor.dtype == case.dtype.name
    x = tensor if case.protocol == NATIVE else Shim(tensor, case.protocol)
    references = sys.getrefcount(tensor)
    if expected.error:
        with pytest.raises(expected.error):
            framework.take(x)
        assert sys.getrefcount(tensor) == references
        del tensor, x
        assert settled(producer) == 1
        return

    array = framework.take(x)
    assert framework.shape(array) == case.layout.shape
    assert framework.dtype(array) == (expected.dtype or case.dtype.name)
    if not expected.copied:
        where = pointer if expected.pointer is None else expected.pointer
        assert framework.pointer(array) == where
        assert framework.strides(array) == (expected.strides or case.layout.strides)
    readonly = case.access == READONLY if expected.readonly is None else expected.readonly
    assert framework.readonly(array) in (None, readonly)
    assert framework.values(array) == case.values

    # The array alone keeps the memory, and returns it once.
    assert sys.getrefcount(tensor) == references
    gone = weakref.ref(producer.memory.base)
    del tensor, x
    assert framework.values(array) == case.values
    assert producer.deletions == int(expected.copied)
    del array
    assert settled(producer) == 1
    assert gone() is None


@pytest.mark.parametrize(("framework", "case"), matrix(contiguous))
def test_memory_of_rust_is_seen_as_it_is(framework: Framework, case: Case):
    expected = expectation(framework.name, EXPORT, case)
    data = pack(case.values, case.dtype)
    tensor = dlbridge.from_bytes(data, dtype=case.dtype.name, shape=case.layout.shape)
    pointer = tensor.data_ptr
    x = tensor if case.protocol == NATIVE else Shim(tensor, case.protocol)
    if expected.error:
        with pytest.raises(expected.error):
            framework.take(x)
        return
    array = framework.take(x)
    del tensor, x
    assert framework.shape(array) == case.layout.shape
    assert framework.values(array) == case.values
    if not expected.copied and case.values:
        assert framework.pointer(array) == pointer
