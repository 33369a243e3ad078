"""Named streams, copies and results in CUDA memory, with a fake driver."""

from __future__ import annotations

import pytest

import dlbridge
from hostile import Managed
from support import Driver


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return Driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def with_slices(driver):
    """The driver, where the example extension makes memory on its device."""
    reason = "the example extension is not installed"
    if not hasattr(pytest.importorskip("dlbridge_example", reason=reason), "filled"):
        pytest.skip("the example extension is built without CUDA")
    return driver


def names(calls: list[str]) -> list[str]:
    return [call.split()[0] for call in calls]


class TestNamedStream:
    """`from_dlpack(x, stream=...)` of a framework with an exchange table."""

    HEAD = """
import dlbridge, fake_cuda
from test_streams import exchanging

theirs, ours = fake_cuda.stream(), fake_cuda.stream()
kind, asked, dlpack = exchanging((2, 0), stream=theirs)
"""

    def test_it_waits_by_one_event_without_a_call_of_python(self, driver):
        calls = driver.run(
            self.HEAD + "t = dlbridge.from_dlpack(kind(), stream=ours)\n"
            "print(f'{theirs:x} {ours:x} {asked} {dlpack}')\n"
        )
        theirs, ours, *rest = driver.output.split(maxsplit=2)
        assert rest == ["[(2, 0)] []\n"]
        assert names(calls).count("cuEventCreate") == names(calls).count("cuEventRecord") == 1
        (record,) = (call for call in calls if call.startswith("cuEventRecord"))
        event = record.split()[1]
        assert record == f"cuEventRecord {event} {theirs}"
        assert [call for call in calls if "Wait" in call] == [f"cuStreamWaitEvent {ours} {event}"]

    def test_the_frameworks_own_stream_does_not_wait_for_itself(self, driver):
        calls = driver.run(self.HEAD + "t = dlbridge.from_dlpack(kind(), stream=theirs)\n")
        assert "cuStreamWaitEvent" not in names(calls)
        assert names(calls).count("cuEventRecord") == 1

    def test_a_consumer_waits_for_the_same_event(self, driver):
        calls = driver.run(
            self.HEAD + "t = dlbridge.from_dlpack(kind(), stream=ours)\n"
            "last = fake_cuda.stream()\nt.__dlpack__(stream=last)\nprint(f'{last:x}')\n"
        )
        assert names(calls).count("cuEventRecord") == 1
        waits = [call.split()[1:] for call in calls if call.startswith("cuStreamWaitEvent")]
        assert [stream for stream, _ in waits][1:] == [driver.output.strip()]
        assert len({event for _, event in waits}) == 1

    @pytest.mark.parametrize("stream", [0, -2, 1.5])
    def test_a_wrong_stream_is_refused_and_the_memory_released(self, driver, stream):
        driver.run(
            self.HEAD + "try:\n    dlbridge.from_dlpack(kind(), stream=" + repr(stream) + ")\n"
            "except (BufferError, TypeError) as error:\n    print(error)\n"
        )
        assert driver.output.startswith("stream: expected ")

    def test_a_tensor_of_ours_makes_it_wait(self, driver):
        calls = driver.run(
            self.HEAD + "t = dlbridge.from_dlpack(dlbridge.from_dlpack(kind()), stream=ours)\n"
            "print(f'{ours:x}')\n"
        )
        assert any(call.startswith(f"cuStreamWaitEvent {driver.output.strip()} ") for call in calls)
        with pytest.raises(BufferError, match=r"stream: expected None, -1, 1 .* found 0"):
            ours = dlbridge.from_dlpack(Managed(device=(2, 0)).capsule())
            dlbridge.from_dlpack(ours, stream=0)


SLICE = """
import dlbridge, fake_cuda
import dlbridge_example as example

x = dlbridge.from_dlpack(example.filled(6, 7.0))
"""


class TestCopies:
    """The queue of the stream that fills the memory has not run when a copy is requested."""

    def prints(self, driver, code: str, expected: str) -> list[str]:
        calls = driver.run(SLICE + code)
        assert driver.output == f"{expected}\n"
        return calls

    @pytest.mark.parametrize(
        "options",
        ["", ", copy=True", ", stream=-1", ", stream=None, copy=None"],
    )
    def test_to_the_host(self, with_slices, options):
        code = f"t = dlbridge.from_dlpack(x, device='cpu'{options})\nprint(t.device, t.tolist())\n"
        self.prints(with_slices, code, f"cpu {[7.0] * 6}")

    @pytest.mark.parametrize(
        "code",
        [
            "dlbridge.from_dlpack(example.filled(6, 7.0), device='cpu').tolist()",
            "x.to_device('cpu').tolist()",
            "__import__('numpy').from_dlpack(x, device='cpu').tolist()",
            "dlbridge.from_dlpack(x.__dlpack__(dl_device=(1, 0))).tolist()",
            "dlbridge.from_dlpack(x.__dlpack__(dl_device=(1, 0), max_version=(1, 3))).tolist()",
        ],
    )
    def test_each_way_to_the_host(self, with_slices, code):
        self.prints(with_slices, f"print({code})\n", str([7.0] * 6))

    def test_the_copy_is_the_hosts_and_says_so(self, with_slices):
        self.prints(
            with_slices,
            "from hostile import read\n"
            "raw = read(x.__dlpack__(dl_device=(1, 0), max_version=(1, 3)))\n"
            "t = dlbridge.from_dlpack(x, device='cpu')\n"
            "t.numpy()[0] = 1\n"
            "print(raw.tensor.device_type, raw.flags, t.tolist()[:2], t.data_ptr % 64)\n",
            "1 2 [1.0, 7.0] 0",
        )

    @pytest.mark.parametrize(
        "part", ["x[::2]", "x.reshape(2, 3).T", "x[::-1]", "x[1:1]", "x.reshape(2, 3)[1, 1:]"]
    )
    @pytest.mark.parametrize("to", ["device='cpu'", "copy=True"])
    def test_of_strided_memory(self, with_slices, part, to):
        self.prints(
            with_slices,
            "import numpy as np, ctypes\n"
            "values = np.arange(6, dtype='float32')\n"
            "check, to, size, stream = fake_cuda.check, x.data_ptr, values.nbytes, 1\n"
            "with fake_cuda.on_device():\n"
            "    source = ctypes.c_void_p(values.ctypes.data)\n"
            "    numbers = ctypes.c_size_t(size), ctypes.c_size_t(stream)\n"
            "    upload = fake_cuda.driver.cuMemcpyHtoDAsync_v2\n"
            "    check(upload(ctypes.c_size_t(to), source, *numbers))\n"
            f"part, expected = {part}, {part.replace('x', 'values')}\n"
            f"copy = dlbridge.from_dlpack(part, {to})\n"
            "assert copy.shape == expected.shape and copy.contiguous\n"
            "assert not part.size or copy.data_ptr != part.data_ptr\n"
            "copy = dlbridge.from_dlpack(copy, device='cpu')\n"
            "print(copy.tolist() == expected.tolist())\n",
            "True",
        )

    def test_on_the_device(self, with_slices):
        calls = self.prints(
            with_slices,
            "copy = dlbridge.from_dlpack(x, copy=True)\n"
            "print(copy.device, fake_cuda.read(copy, 1), copy.data_ptr != x.data_ptr)\n"
            "del copy\n",
            f"cuda:0 {[7.0] * 6} True",
        )
        assert names(calls).count("cuMemFree_v2") == 1

    def test_it_breaks_no_capture(self, with_slices):
        self.prints(
            with_slices,
            "stream = fake_cuda.stream()\n"
            "fake_cuda.capture(stream)\n"
            "copies = [dlbridge.from_dlpack(x, copy=True), dlbridge.from_dlpack(x, device='cpu')]\n"
            "copies.pop(0)\n"
            "print(copies.pop().tolist(), fake_cuda.is_whole(stream))\n",
            f"{[7.0] * 6} True",
        )

    def test_a_forked_child_frees_nothing(self, with_slices):
        self.prints(
            with_slices,
            "import os\n"
            "copies = [dlbridge.from_dlpack(x, copy=True)]\n"
            "if (child := os.fork()) == 0:\n"
            "    copies.clear()\n"
            "    os._exit(0)\n"
            "print(os.waitpid(child, 0)[1])\n",
            "0",
        )

    def test_a_producer_that_makes_no_copy_is_copied(self, with_slices):
        self.prints(
            with_slices,
            "class Only:\n"
            "    __cuda_array_interface__ = x.__cuda_array_interface__\n"
            "copy = dlbridge.from_dlpack(Only(), copy=True)\n"
            "print(copy.device, fake_cuda.read(copy, 1))\n",
            f"cuda:0 {[7.0] * 6}",
        )

    def test_without_a_copy_it_is_refused(self, with_slices):
        self.prints(
            with_slices,
            "try:\n    dlbridge.from_dlpack(x, device='cpu', copy=False)\n"
            "except BufferError as error:\n    print(error)\n",
            "device: expected cpu, found cuda:0, and the producer refused to copy; copy it with a "
            'framework that has this device, as x.to("cpu") in PyTorch',
        )

    def test_the_advice_of_tolist_is_right(self, with_slices):
        self.prints(
            with_slices,
            "try:\n    x.tolist()\nexcept BufferError as error:\n"
            "    advice = str(error).split('copy it, ')[1]\n    print(eval(advice).tolist())\n",
            str([7.0] * 6),
        )

    def test_an_error_of_the_driver_is_a_buffer_error(self, with_slices):
        for fails in ("cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"):
            with_slices.run(
                SLICE + "try:\n    dlbridge.from_dlpack(x, device='cpu')\n"
                "except BufferError as error:\n    print(error)\n",
                fails=fails,
            )
            assert with_slices.output.startswith(f"stream: {fails.removesuffix('_v2')} failed")


class TestInterface:
    """`__cuda_array_interface__` of a `dlbridge.Tensor`."""

    def test_it_describes_the_memory_and_names_its_stream(self, with_slices):
        with_slices.run(
            SLICE + "part = x.reshape(2, 3)[:, ::2]\n"
            "found = part.__cuda_array_interface__\n"
            "print(found == {'version': 3, 'typestr': '<f4', 'shape': (2, 2), "
            "'strides': (12, 8), 'data': (part.data_ptr, False), 'stream': 1})\n"
        )
        assert with_slices.output == "True\n"

    def test_the_stream_runs_behind_the_work(self, with_slices):
        code = (
            "class Only:\n    __cuda_array_interface__ = x.__cuda_array_interface__\n"
            "ours = fake_cuda.stream()\n"
            "print(fake_cuda.read(dlbridge.from_dlpack(Only(), stream=ours), ours))\n"
        )
        with_slices.run(SLICE + code)
        assert with_slices.output == f"{[7.0] * 6}\n"
        with_slices.run(SLICE + code, forgets="cuStreamWaitEvent")
        assert with_slices.output != f"{[7.0] * 6}\n", "the driver is late"

    @pytest.mark.parametrize("device", [(1, 0), (3, 0), (10, 0)])
    def test_other_memory_has_none(self, device):
        tensor = dlbridge.from_dlpack(Managed(device=device).capsule())
        assert not hasattr(tensor, "__cuda_array_interface__")

    def test_a_dtype_that_it_lacks_has_none(self):
        bfloat16 = Managed(device=(2, 0), dtype=(4, 16, 1))
        assert not hasattr(dlbridge.from_dlpack(bfloat16.capsule()), "__cuda_array_interface__")
        assert hasattr(
            dlbridge.from_dlpack(Managed(device=(2, 0)).capsule()), "__cuda_array_interface__"
        )


FRAMEWORK = """
import sys, types
import dlbridge, fake_cuda
import dlbridge_example as example

class Array:
    def __init__(self, tensor):
        self.tensor = tensor
    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)
    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

def value(array):
    return dlbridge.from_dlpack(array, device="cpu").tolist()
"""


class TestResults:
    """`full_like` and `empty_like` for frameworks without an allocator in an exchange table."""

    def test_cupy_allocates_its_own(self, with_slices):
        calls = with_slices.run(
            FRAMEWORK + "made, current = [], fake_cuda.stream()\n"
            "def empty(shape, dtype):\n"
            "    made.append(Array(dlbridge.from_dlpack(example.filled(shape[0], 1.0))))\n"
            "    assert dtype is sys.modules['cupy'].float32\n"
            "    return made[-1]\n"
            "empty.__module__ = 'cupy'\n"
            "Array.__module__, Array.__name__ = 'cupy', 'ndarray'\n"
            "Array.device = None\n"
            "stream = types.SimpleNamespace(ptr=current)\n"
            "cuda = types.SimpleNamespace(get_current_stream=lambda: stream)\n"
            "sys.modules['cupy'] = types.SimpleNamespace(empty=empty, float32=object(), "
            "from_dlpack=Array, cuda=cuda)\n"
            "x = Array(dlbridge.from_dlpack(example.filled(3, 7.0)))\n"
            "y = example.full_like(x, 2.5)\n"
            "print(type(y) is Array, y.tensor.data_ptr == made[0].tensor.data_ptr, value(y))\n"
            "print(f'{current:x}')\n"
        )
        first, current = with_slices.output.splitlines()
        assert first == f"True True {[2.5] * 3}"
        # The memory is free in the order of CuPy's current stream.
        assert any(call.startswith("cuEventRecord") and call.endswith(current) for call in calls)

    def test_jax_gets_memory_of_rust(self, with_slices):
        with_slices.run(
            FRAMEWORK + "Array.__module__, Array.__name__ = 'jaxlib.fake', 'Array'\n"
            "namespace = types.SimpleNamespace(from_dlpack=Array, float32=None, empty=None)\n"
            "Array.__array_namespace__ = lambda self: namespace\n"
            "x = Array(dlbridge.from_dlpack(example.filled(3, 7.0)))\n"
            "y = example.full_like(x, 2.5)\n"
            "print(type(y) is Array, y.tensor.device, value(y), value(x))\n"
            "print(example.empty_like(x).tensor.shape)\n"
        )
        assert with_slices.output == f"True cuda:0 {[2.5] * 3} {[7.0] * 3}\n(3,)\n"

    def test_without_memory_it_is_a_memory_error(self, with_slices):
        with_slices.run(
            FRAMEWORK + "Array.__module__, Array.__name__ = 'jaxlib.fake', 'Array'\n"
            "from hostile import Managed\n"
            "large = dlbridge.from_dlpack(Managed(device=(2, 0), shape=(1 << 44,)).capsule())\n"
            "try:\n    example.empty_like(Array(large))\nexcept MemoryError as error:\n"
            "    print(error)\n"
        )
        assert with_slices.output == f"cannot allocate {4 << 44} bytes on cuda:0\n"


def test_a_reversed_view_of_cupy_is_imported_by_its_interface(driver):
    """CuPy divides strides in bytes as unsigned numbers: -4 becomes 2**62 - 1."""
    driver.run(
        "import dlbridge\n"
        "from hostile import Managed\n"
        "class ndarray:\n"
        "    __module__ = 'cupy'\n"
        "    def __dlpack__(self, **keywords):\n"
        "        made = Managed(device=(2, 0), data=0x8108, strides=(2**62 - 1,))\n"
        "        return made.capsule()\n"
        "    def __dlpack_device__(self):\n"
        "        return 2, 0\n"
        "    __cuda_array_interface__ = {'version': 3, 'typestr': '<f4', 'shape': (3,), "
        "'strides': (-4,), 'data': (0x8108, False)}\n"
        "t = dlbridge.from_dlpack(ndarray())\n"
        "again = dlbridge.from_dlpack(ndarray(), stream=1)\n"
        "print(t.device, t.strides, hex(t.data_ptr), again.strides)\n"
        "ndarray.__module__ = 'another'\n"
        "class Other(ndarray):\n    pass\n"
        "try:\n    dlbridge.from_dlpack(Other())\nexcept BufferError as error:\n    print(error)\n"
    )
    first, second = driver.output.splitlines()
    assert first == "cuda:0 (-1,) 0x8108 (-1,)"
    assert "strided span" in second
