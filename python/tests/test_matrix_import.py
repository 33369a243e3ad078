"""Every kind of array of every framework, taken into Rust."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

import dlbridge
from frameworks.cases import (
    DTYPES,
    LAYOUTS,
    LEGACY,
    NATIVE,
    PROTOCOLS,
    READONLY,
    WRITABLE,
    Case,
    cases,
    pack,
    read,
)
from frameworks.kinds import FRAMEWORKS, Framework, matrix
from frameworks.quirks import IMPORT, expectation
from frameworks.raw import Producer, Shim, aligned, settled

# pyarrow's word on the old ABI.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Exporting an unversioned:DeprecationWarning"),
]


def given(framework: Framework) -> list[Case]:
    return cases(framework.dtypes, framework.layouts, framework.accesses)


def offered(framework: Framework, array: object, case: Case) -> object:
    producer = framework.offer(array, case)
    return producer if case.protocol == NATIVE else Shim(producer, case.protocol)


@pytest.mark.parametrize(("framework", "case"), matrix(given))
def test_an_array_is_seen_as_it_is(framework: Framework, case: Case):
    expected = expectation(framework.name, IMPORT, case)
    memory = aligned(pack(case.storage, case.dtype))
    array = framework.make(case, memory)
    assert framework.values(array) == case.values
    x = offered(framework, array, case)
    references = sys.getrefcount(array)
    if expected.error:
        with pytest.raises(expected.error):
            dlbridge.from_dlpack(x)
        assert sys.getrefcount(array) == references
        return

    tensor = dlbridge.from_dlpack(x)
    pointer = framework.pointer(array) if expected.pointer is None else expected.pointer
    assert tensor.data_ptr == pointer
    assert tensor.shape == case.layout.shape
    assert tensor.strides == (expected.strides or case.layout.strides)
    assert tensor.dtype == case.dtype.name
    assert tensor.device == "cpu"
    readonly = case.access == READONLY if expected.readonly is None else expected.readonly
    assert tensor.readonly is readonly
    assert read(tensor.data_ptr, case.dtype, tensor.shape, tensor.strides) == case.values
    del tensor
    assert sys.getrefcount(array) == references

    # The tensor alone keeps the memory, and returns it.
    tensor = dlbridge.from_dlpack(x)
    owner = weakref.ref(memory.base)
    del memory, array, x
    assert read(tensor.data_ptr, case.dtype, tensor.shape, tensor.strides) == case.values
    if framework.shares_on_making:
        assert owner() is not None
    del tensor
    if framework.name == "jax":
        # It keeps the source of its copy until it is called again, or garbage is collected.
        gc.collect()
    assert owner() is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_jax_gets_back_the_memory_that_it_took_from_elsewhere(protocol: str):
    jax = FRAMEWORKS["jax"]
    jax.load()
    case = Case(DTYPES["float32"], LAYOUTS["contiguous"], LEGACY, WRITABLE)
    producer = Producer(case, aligned(pack(case.storage, case.dtype)))
    pointer = producer.pointer
    array = jax.take(producer)
    tensor = dlbridge.from_dlpack(array if protocol == NATIVE else Shim(array, protocol))
    del array
    assert tensor.data_ptr == pointer
    assert producer.deletions == 0
    del tensor
    assert settled(producer) == 1
