"""NumPy's `__array_interface__` and CUDA's, taken from objects without DLPack and without a buffer.

The tests need no GPU: no code reads the addresses on one, and the driver is a fake."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref

import numpy as np
import pytest

import dlbridge
from support import Driver, fill

NATIVE, OTHER = ("<", ">") if sys.byteorder == "little" else (">", "<")


class Interface:
    """An object with an array interface, and nothing else."""

    def __init__(self, described: object, keep: object = None) -> None:
        self.__array_interface__ = described
        self.keep = keep


def of(array: np.ndarray, **changes: object) -> Interface:
    return Interface({**array.__array_interface__, **changes}, array)


ARRAYS = {
    "row-major": np.arange(6, dtype="float32").reshape(2, 3),
    "column-major": np.arange(6, dtype="int64").reshape(2, 3).T,
    "gaps": np.arange(24, dtype="uint16").reshape(4, 6)[::2, 1::3],
    "backwards": np.arange(6, dtype="complex64")[::-1],
    "broadcast": np.broadcast_to(np.float16(2), (3, 2)),
    "0-d": np.array(True),
    "empty": np.zeros((2, 0, 3)),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_the_memory_is_shared(array):
    source = of(array)
    tensor = dlbridge.from_dlpack(source)
    assert (tensor.shape, tensor.dtype, tensor.device) == (array.shape, array.dtype.name, "cpu")
    assert tensor.data_ptr == array.ctypes.data
    assert tensor.readonly is not array.flags.writeable
    assert np.array_equal(np.from_dlpack(tensor), array)
    description = dlbridge.inspect(source)
    assert (description.protocol, description.version) == ("__array_interface__", None)


def test_without_strides_the_memory_is_contiguous():
    described = np.arange(6.0).reshape(2, 3).__array_interface__
    for strides in ({}, {"strides": None}):
        array = np.arange(6.0).reshape(2, 3)
        described = {**array.__array_interface__}
        del described["strides"]
        tensor = dlbridge.from_dlpack(Interface({**described, **strides}, array))
        assert tensor.strides == (3, 1)


class TestLifetime:
    def test_the_object_lives_as_long_as_the_tensor(self):
        source = of(np.arange(3.0))
        there = weakref.ref(source)
        tensor = dlbridge.from_dlpack(source)
        del source
        gc.collect()
        assert np.from_dlpack(tensor).tolist() == [0, 1, 2]
        assert there() is not None
        del tensor
        assert there() is None

    def test_a_dict_that_owns_the_memory_lives_as_long(self):
        class Fresh:
            """Makes its memory when it is asked, as NumPy's scalars do."""

            @property
            def __array_interface__(self):
                class Described(dict):
                    pass

                array = np.full(3, 7, dtype="uint8")
                described = Described(array.__array_interface__)
                described.array = array
                return described

        tensor = dlbridge.from_dlpack(Fresh())
        gc.collect()
        assert np.from_dlpack(tensor).tolist() == [7, 7, 7]

    def test_a_refusal_leaves_no_reference(self):
        source = of(np.arange(3.0), typestr="|O8")
        before = sys.getrefcount(source)
        for _ in range(100):
            with pytest.raises(BufferError):
                dlbridge.from_dlpack(source)
        assert sys.getrefcount(source) == before


class TestData:
    """The clause on `data` that is an object with a buffer, as Pillow's images have it."""

    @staticmethod
    def described(**changes):
        return {"version": 3, "shape": (2, 2), "typestr": f"{NATIVE}u2", **changes}

    @pytest.mark.parametrize("data", [b"abcdefgh", bytearray(b"abcdefgh")])
    def test_the_buffer_is_shared(self, data):
        tensor = dlbridge.from_dlpack(Interface(self.described(data=data)))
        assert tensor.readonly is isinstance(data, bytes)
        assert tensor.data_ptr == np.frombuffer(data, "uint8").ctypes.data
        assert bytes(tensor) == bytes(data)

    def test_the_buffer_is_held(self):
        data = bytearray(8)
        source = Interface(self.described(data=data))
        tensor = dlbridge.from_dlpack(source)
        with pytest.raises(BufferError):
            data.append(0)
        del tensor
        data.append(0)

    def test_an_offset_is_added(self):
        data = bytes(range(12))
        tensor = dlbridge.from_dlpack(Interface(self.described(data=data, offset=4)))
        assert bytes(tensor) == data[4:]

    def test_without_data_the_buffer_is_the_objects_own_and_comes_first(self):
        class Image(bytearray):
            __array_interface__ = self.described(offset=2)

        assert dlbridge.inspect(Image(12)).protocol == "buffer protocol"
        with pytest.raises(BufferError, match="data: expected an entry, found none"):
            dlbridge.from_dlpack(Interface(self.described()))

    @pytest.mark.parametrize(
        ("changes", "found"),
        [
            ({"data": bytes(7)}, "expected 0 bytes before offset 0 and 8 from it, found 7 bytes"),
            ({"data": b""}, "found 0 bytes"),
            (
                {"data": bytes(8), "offset": 1},
                "expected 0 bytes before offset 1 and 8 from it, found 8 bytes",
            ),
            ({"data": bytes(8), "offset": 2**63}, "found 8 bytes"),
            ({"data": bytes(8), "offset": 2**64 - 1}, "found"),
            ({"data": bytes(8), "offset": -1}, "offset: expected .*, found -1"),
            ({"data": bytes(8), "offset": "0"}, "offset: expected .*, found '0'"),
            (
                {"data": bytes(8), "strides": (4, 4)},
                "expected 0 bytes before offset 0 and 10 from it, found 8 bytes",
            ),
            (
                {"data": bytes(8), "strides": (-4, 2)},
                "expected 4 bytes before offset 0 and 4 from it, found 8 bytes",
            ),
            (
                {"data": memoryview(bytes(16))[::2]},
                "expected a contiguous buffer, found one with gaps",
            ),
            ({"data": "abcdefgh"}, "expected an address or an object with the buffer protocol"),
            ({"data": 4096}, "expected an address or an object with the buffer protocol"),
        ],
    )
    def test_a_lying_size_is_found_out(self, changes, found):
        with pytest.raises(BufferError, match=f"(data|offset): {found}|{found}"):
            dlbridge.from_dlpack(Interface(self.described(**changes)))

    def test_negative_strides_stay_inside_with_an_offset(self):
        data = bytes(range(8))
        described = self.described(data=data, strides=(-4, 2), offset=4)
        tensor = dlbridge.from_dlpack(Interface(described))
        assert bytes(tensor) == data[4:] + data[:4]


class TestHostile:
    @pytest.mark.parametrize(
        ("changes", "found"),
        [
            ({"version": 2}, "version: expected a number from 3 to 3, found 2"),
            ({"version": 4}, "version: expected .*, found 4"),
            ({"version": "3"}, "version: expected .*, found '3'"),
            ({"version": None}, "version: expected .*, found none"),
            ({"shape": None}, "shape: expected .*, found none"),
            ({"shape": 3}, "shape: expected a tuple of integers, found 3"),
            ({"shape": [3]}, r"shape: expected .*, found \[3\]"),
            ({"shape": (2.5,)}, "shape: expected .*, found"),
            ({"shape": (-1,)}, "extent 0 or more, found -1"),
            ({"shape": (2**64,)}, "shape: expected .*, found"),
            ({"shape": (2**62, 4)}, "element count"),
            ({"shape": (2**61,)}, "size"),
            ({"shape": (1,) * 65}, "shape: expected 64 axes or fewer, found 65"),
            ({"strides": (8, 8)}, "strides: expected 1 of them, found 2"),
            ({"strides": (3,)}, "strides: axis 0: expected a multiple of 8 bytes, .*, found 3"),
            ({"strides": (2**62,)}, "found a larger byte size"),
            ({"strides": "8"}, "strides: expected .*, found '8'"),
            ({"typestr": None}, "typestr: expected .*, found none"),
            ({"typestr": 4}, "typestr: expected .*, found 4"),
            ({"typestr": f"{OTHER}f8"}, "expected this machine's byte order"),
            ({"typestr": "|O8"}, "expected a kind of number"),
            ({"typestr": "<U4"}, "expected a kind of number"),
            ({"typestr": "<M8[ns]"}, "typestr: expected .*, found"),
            ({"typestr": "<f16"}, "expected a size that this kind of number has"),
            ({"typestr": ""}, "typestr: expected .*, found"),
            ({"data": (0, False)}, "data is null|null"),
            ({"data": (-1, False)}, "data: expected .*, found"),
            ({"data": (2**64 - 8, False)}, "data: expected .*, found address 0xfffffffffffffff8"),
            ({"data": (2**64, False)}, "data: expected .*, found"),
            ({"data": (4096,)}, "data: expected .*, found"),
            ({"data": (4096, "no")}, "data: expected .*, found"),
            ({"data": (4096, False, 0)}, "data: expected .*, found"),
            ({"data": ("4096", False)}, "data: expected .*, found"),
            ({"mask": np.zeros(3, bool)}, "mask: expected an array without a mask, found one"),
        ],
    )
    def test_a_wrong_entry_is_a_buffer_error_that_names_it(self, changes, found):
        with pytest.raises(BufferError, match=found):
            dlbridge.from_dlpack(of(np.arange(3.0), **changes))

    @pytest.mark.parametrize("missing", ["version", "shape", "typestr"])
    def test_a_missing_entry_is_a_buffer_error_that_names_it(self, missing):
        source = of(np.arange(3.0))
        del source.__array_interface__[missing]
        with pytest.raises(BufferError, match=f"{missing}: expected an entry, found none"):
            dlbridge.from_dlpack(source)

    @pytest.mark.parametrize("described", [None, 3, [], "version", ((),)])
    def test_what_is_no_dict_is_a_buffer_error(self, described):
        with pytest.raises(
            BufferError, match="__array_interface__: expected a dict, found another object"
        ):
            dlbridge.from_dlpack(Interface(described))

    def test_an_exception_of_the_property_comes_out(self):
        class Broken:
            @property
            def __array_interface__(self):
                raise RuntimeError("not now")

        with pytest.raises(RuntimeError, match="not now"):
            dlbridge.from_dlpack(Broken())

    def test_a_tuple_is_not_asked_for_its_length(self):
        asked = []

        class Shape(tuple):
            def __len__(self):
                asked.append(self)
                return 2

        tensor = dlbridge.from_dlpack(of(np.arange(6.0), shape=Shape((2, 3))))
        assert (tensor.shape, asked) == ((2, 3), [])

    def test_an_odd_stride_that_is_never_taken_is_fine(self):
        array = np.arange(3.0)
        tensor = dlbridge.from_dlpack(of(array, shape=(1, 3), strides=(5, 8)))
        assert np.from_dlpack(tensor).tolist() == [[0, 1, 2]]
        empty = dlbridge.from_dlpack(of(array, shape=(0, 3), strides=(5, 7)))
        assert empty.shape == (0, 3)

    def test_an_empty_array_needs_no_address(self):
        tensor = dlbridge.from_dlpack(of(np.zeros(0), data=(0, False)))
        assert (tensor.shape, tensor.data_ptr) == ((0,), 0)


def test_memory_at_an_odd_address_is_read():
    memory = (ctypes.c_char * 17)()
    at = ctypes.addressof(memory) + 1
    described = {"version": 3, "shape": (2,), "typestr": f"{NATIVE}f8", "data": (at, False)}
    tensor = dlbridge.from_dlpack(Interface(described, memory))
    fill(tensor, 2)
    assert memoryview(dlbridge.from_dlpack(tensor, copy=True)).tolist() == [2, 2]


class CudaInterface:
    """An object with a CUDA array interface, and nothing else."""

    def __init__(self, **changes: object) -> None:
        described = {"shape": (3,), "typestr": "<f4", "data": (0x7100, False), "version": 3}
        described.update(changes)
        self.__cuda_array_interface__ = {k: v for k, v in described.items() if v is not ...}


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return Driver(tmp_path_factory.mktemp("driver"))


HEAD = """
import dlbridge
from test_array_interface import CudaInterface as Interface
from fake_cuda import stream
stream(1), stream(1)  # numbers 0x5000 and 0x5001, on the device of the interface
"""


class TestCudaMemory:
    def test_the_driver_tells_the_device(self, driver):
        calls = driver.run(
            HEAD + "for at in (0x7100, 0x8100):\n"
            "    t = dlbridge.from_dlpack(Interface(data=(at, False)))\n"
            "    print(t.device, hex(t.data_ptr), t.shape, t.strides, t.dtype, t.readonly)\n"
        )
        assert driver.output.splitlines() == [
            "cuda:1 0x7100 (3,) (1,) float32 False",
            "cuda:0 0x8100 (3,) (1,) float32 False",
        ]
        assert calls == ["cuPointerGetAttribute 9 7100", "cuPointerGetAttribute 9 8100"]

    def test_everything_is_carried(self, driver):
        driver.run(
            HEAD + "source = Interface(shape=(2, 3), strides=(8, 16), typestr='<i8',\n"
            "    data=(0x7100, True), mask=None, stream=None, descr=[('', '<i8')])\n"
            "t = dlbridge.from_dlpack(source)\n"
            "print(t.shape, t.strides, t.dtype, t.readonly)\n"
            "d = dlbridge.inspect(source)\n"
            "print(d.protocol, d.version, d.flags)\n"
        )
        assert driver.output.splitlines() == [
            "(2, 3) (1, 2) int64 True",
            "__cuda_array_interface__ None READ_ONLY",
        ]

    @pytest.mark.parametrize("version", [0, 1, 2, 3])
    def test_every_version_is_taken(self, driver, version):
        code = f"print(dlbridge.from_dlpack(Interface(version={version})).device)\n"
        driver.run(HEAD + code)
        assert driver.output == "cuda:1\n"

    def test_the_object_lives_as_long_as_the_tensor(self, driver):
        driver.run(
            HEAD + "import gc, weakref\nsource = Interface()\nthere = weakref.ref(source)\n"
            "t = dlbridge.from_dlpack(source)\ndel source\ngc.collect()\n"
            "print(there() is not None)\ndel t\nprint(there() is None)\n"
        )
        assert driver.output == "True\nTrue\n"

    def test_an_empty_array_needs_neither_address_nor_driver(self):
        tensor = dlbridge.from_dlpack(CudaInterface(shape=(0, 3), data=(0, False)))
        assert (tensor.device, tensor.shape, tensor.data_ptr) == ("cuda:0", (0, 3), 0)

    def test_memory_that_the_driver_does_not_know_is_refused(self, driver):
        driver.run(
            HEAD + "try:\n    dlbridge.from_dlpack(Interface(data=(0x10, False)))\n"
            "except BufferError as error:\n    print(error)\n"
        )
        assert (
            driver.output == "stream: cuPointerGetAttribute failed with CUDA_ERROR_INVALID_VALUE\n"
        )

    def test_without_a_driver_the_device_is_unknown(self):
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            pass
        else:
            pytest.skip("this machine has a driver")
        with pytest.raises(BufferError, match=r"expected a CUDA driver .*, found none"):
            dlbridge.from_dlpack(CudaInterface())

    def test_it_comes_before_the_interface_of_the_host(self, driver):
        driver.run(
            HEAD + "import numpy\nsource = Interface()\nsource.kept = numpy.zeros(3)\n"
            "source.__array_interface__ = source.kept.__array_interface__\n"
            "print(dlbridge.inspect(source).protocol)\n"
        )
        assert driver.output == "__cuda_array_interface__\n"


class TestCudaStreams:
    def test_without_a_stream_nothing_is_waited_for(self, driver):
        for stream in ("", "stream=None"):
            code = f"dlbridge.from_dlpack(Interface({stream})).__dlpack__(stream=1)\n"
            assert driver.run(HEAD + code) == ["cuPointerGetAttribute 9 7100"]

    def test_the_default_stream_waits_for_the_interfaces(self, driver):
        calls = driver.run(HEAD + "dlbridge.from_dlpack(Interface(stream=0x5000))\n")
        assert "cuEventRecord e001 5000" in calls
        assert "cuStreamWaitEvent 1 e001" in calls
        assert calls.index("cuEventRecord e001 5000") < calls.index("cuStreamWaitEvent 1 e001")
        assert "cuEventDestroy_v2 e001 0" in calls

    def test_the_default_stream_does_not_wait_for_itself(self, driver):
        assert driver.run(HEAD + "dlbridge.from_dlpack(Interface(stream=1))\n") == [
            "cuPointerGetAttribute 9 7100"
        ]

    def test_the_stream_asked_for_waits(self, driver):
        calls = driver.run(HEAD + "dlbridge.from_dlpack(Interface(stream=0x5000), stream=0x5001)\n")
        assert "cuStreamWaitEvent 5001 e001" in calls
        calls = driver.run(HEAD + "dlbridge.from_dlpack(Interface(stream=0x5000), stream=-1)\n")
        assert not any(call.startswith("cuStreamWaitEvent") for call in calls)

    @pytest.mark.parametrize("stream", [0, -1, -5, "x", 1.5, 2**70])
    def test_a_wrong_stream_is_a_buffer_error(self, stream):
        with pytest.raises(
            BufferError, match=r"stream: expected None, 1 \(legacy default.*, found "
        ):
            dlbridge.from_dlpack(CudaInterface(stream=stream))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"version": 4}, "version: expected a number from 0 to 3, found 4"),
        ({"version": -1}, "version: expected .*, found -1"),
        ({"version": ...}, "version: expected .*, found none"),
        ({"shape": ...}, "shape: expected .*, found none"),
        ({"typestr": ...}, "typestr: expected .*, found none"),
        ({"data": ...}, "data: expected an address and a read-only flag, found"),
        ({"data": None}, "data: expected an address and a read-only flag, found"),
        ({"data": b"bytes on a device"}, "data: expected an address and a read-only flag, found"),
        ({"data": (-1, False)}, "data: expected .*, found"),
        ({"data": (0, False)}, "data"),
        ({"data": (2**64 - 4, False)}, "data: expected .*, found address 0xfffffffffffffffc"),
        ({"data": (0x7100, "no")}, "data: expected .*, found"),
        ({"mask": np.zeros(3, bool)}, "mask: expected .*, found one"),
        ({"shape": (-3,)}, "extent 0 or more, found -3"),
        ({"shape": (2**62, 2**62)}, "element count"),
        ({"strides": (3,)}, "strides: axis 0: expected a multiple of 4 bytes, .*, found 3"),
        ({"strides": (4, 4)}, "strides: expected 1 of them, found 2"),
        ({"typestr": ">f4"}, "expected this machine's byte order"),
        ({"typestr": "|V4"}, "expected a kind of number"),
    ],
)
def test_a_wrong_entry_is_a_buffer_error_that_names_it(changes, found):
    with pytest.raises(BufferError, match=found):
        dlbridge.from_dlpack(CudaInterface(**changes))


def test_torch_on_the_host_is_no_device_memory():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert dlbridge.inspect(torch.zeros(3)).protocol == "C exchange API"
