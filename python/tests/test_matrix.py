"""Every kind of array of every framework, taken into Rust; tensors of every kind, given to it.

Read-only memory that a consumer takes by itself: which frameworks write to it all the same
(SAFETY.md, C1), and the ways out. That of Rust is in `crates/dlbridge-pyo3/tests/read_only.rs`."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

import dlbridge
from frameworks.cases import (
    ACCESSES,
    CONTIGUOUS,
    DTYPES,
    LAYOUTS,
    LEGACY,
    NATIVE,
    PROTOCOLS,
    READONLY,
    WRITABLE,
    Case,
    Producer,
    Shim,
    aligned,
    cases,
    pack,
    read,
    settled,
)
from frameworks.kinds import FRAMEWORKS, KINDS, Framework, matrix, pointer
from frameworks.quirks import EXPORT, IMPORT, expectation


def given(framework: Framework) -> list[Case]:
    return cases(framework.dtypes, framework.layouts, framework.accesses)


def offered(framework: Framework, array: object, case: Case) -> object:
    producer = framework.offer(array, case)
    return producer if case.protocol == NATIVE else Shim(producer, case.protocol)


@pytest.mark.slow
# pyarrow's word on the old ABI.
@pytest.mark.filterwarnings("ignore:Exporting an unversioned:DeprecationWarning")
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


OLD_JAX = "jax" if not FRAMEWORKS["jax"].missing and not FRAMEWORKS["jax"].gives_versioned else ""
REFUSED = ("tensorflow", OLD_JAX)
"""These ask for a legacy capsule alone."""


@pytest.fixture
def memory():
    array = aligned(np.ones(16, "float32").tobytes()).view("float32")
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_who_writes_to_read_only_memory(kind, memory):
    tensor, module = dlbridge.from_dlpack(memory), kind.load()
    if kind.module in REFUSED:
        with pytest.raises(
            BufferError, match=r"expected 1\.0 or newer, which marks memory read-only"
        ):
            kind.take(module, tensor)
        return
    array = kind.unwrap(kind.take(module, tensor))
    if kind.copies:
        assert pointer(array) != pointer(memory)
    elif kind.forgets:
        array[0] = 7
        assert memory[0] == 7
    else:
        assert pointer(array) == pointer(memory)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_a_function_of_tvm_ffi_passes_it_on_as_writable(memory):
    tvm_ffi = pytest.importorskip("tvm_ffi", reason="tvm_ffi is not installed")
    tensor = dlbridge.from_dlpack(memory)
    again = tvm_ffi.get_global_func("testing.echo")(tensor)
    assert (again.data_ptr, again.readonly) == (tensor.data_ptr, False)


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        self.torch = pytest.importorskip("torch", reason="torch is not installed")

    def test_it_writes_whichever_way_it_takes_the_memory(self, memory):
        tensor = dlbridge.from_dlpack(memory)
        array = np.from_dlpack(tensor)
        ways = [tensor, tensor.__dlpack__(max_version=(1, 0)), array]
        for number, x in enumerate(ways):
            self.torch.from_dlpack(x)[0] = number
            assert memory[0] == number
        with pytest.raises(
            BufferError, match=r"expected 1\.0 or newer, which marks memory read-only"
        ):
            tensor.__dlpack__()

    @pytest.mark.filterwarnings("ignore:The given .* is not writable")
    def test_it_writes_to_a_read_only_buffer(self, memory):
        tensor = dlbridge.from_dlpack(memory)
        for number, take in enumerate((self.torch.frombuffer, self.torch.asarray), start=2):
            take(tensor, dtype=self.torch.float32)[0] = number
            assert memory[0] == number

    def test_a_copy_is_its_own(self, memory):
        tensor = dlbridge.from_dlpack(memory)
        copies = [
            self.torch.from_dlpack(tensor, copy=True),
            self.torch.from_dlpack(dlbridge.from_dlpack(memory, copy=True)),
        ]
        for copy in copies:
            copy[0] = 7
        assert memory[0] == 1

    @pytest.mark.parametrize(("copy", "survives"), [("None", False), ("True", True)])
    def test_writing_to_a_page_that_is_read_only_ends_the_process(self, tmp_path, copy, survives):
        (tmp_path / "numbers").write_bytes(bytes(4096))
        code = f"""if True:
            import mmap, numpy, torch, dlbridge
            with open("numbers", "rb") as file:
                pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            tensor = dlbridge.from_dlpack(numpy.frombuffer(pages, "uint8"))
            taken = torch.from_dlpack(tensor, copy={copy})
            print("taken", flush=True)
            taken[0] = 7
            print("written")
        """
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.stdout.split() == (["taken", "written"] if survives else ["taken"])
        assert (done.returncode == 0) == survives
