"""Read-only memory that a consumer takes by itself: which frameworks write to it all the same
(SAFETY.md, C1), and the ways out.

Memory of Rust is in `crates/dlbridge-pyo3/tests/read_only.rs`.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import dlbridge
from frameworks.callers import KINDS, pointer
from frameworks.kinds import FRAMEWORKS
from frameworks.raw import aligned

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
