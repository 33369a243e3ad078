"""`__cuda_array_interface__`, taken from objects without DLPack.

No GPU has run this: addresses are numbers that nobody reads, and the driver is played.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import dlbridge
import fake_driver


class Interface:
    """An object with a CUDA array interface, and nothing else."""

    def __init__(self, **changes: object) -> None:
        described = {"shape": (3,), "typestr": "<f4", "data": (0x7100, False), "version": 3}
        described.update(changes)
        self.__cuda_array_interface__ = {k: v for k, v in described.items() if v is not ...}


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return fake_driver.Driver(tmp_path_factory.mktemp("driver"))


HEAD = """
import dlbridge
from test_cuda_array_interface import Interface
"""


class TestMemory:
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
        assert calls == ["pointer 9 7100", "pointer 9 8100"]

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
        tensor = dlbridge.from_dlpack(Interface(shape=(0, 3), data=(0, False)))
        assert (tensor.device, tensor.shape, tensor.data_ptr) == ("cuda:0", (0, 3), 0)

    def test_memory_that_the_driver_does_not_know_is_refused(self, driver):
        driver.run(
            HEAD + "try:\n    dlbridge.from_dlpack(Interface(data=(0x10, False)))\n"
            "except BufferError as error:\n    print(error)\n"
        )
        assert driver.output == "stream: cuPointerGetAttribute failed with error 1\n"

    def test_without_a_driver_the_device_is_unknown(self):
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            pass
        else:
            pytest.skip("this machine has a driver")
        with pytest.raises(BufferError, match=r"expected a CUDA driver .*, found none"):
            dlbridge.from_dlpack(Interface())

    def test_it_comes_before_the_interface_of_the_host(self, driver):
        driver.run(
            HEAD + "import numpy\nsource = Interface()\nsource.kept = numpy.zeros(3)\n"
            "source.__array_interface__ = source.kept.__array_interface__\n"
            "print(dlbridge.inspect(source).protocol)\n"
        )
        assert driver.output == "__cuda_array_interface__\n"


class TestStreams:
    def test_without_a_stream_nothing_is_waited_for(self, driver):
        for stream in ("", "stream=None"):
            code = f"dlbridge.from_dlpack(Interface({stream})).__dlpack__(stream=1)\n"
            assert driver.run(HEAD + code) == ["pointer 9 7100"]

    def test_the_default_stream_waits_for_the_interfaces(self, driver):
        calls = driver.run(HEAD + "dlbridge.from_dlpack(Interface(stream=0x5000))\n")
        assert "record e001 5000" in calls
        assert "wait 1 e001" in calls
        assert calls.index("record e001 5000") < calls.index("wait 1 e001")
        assert "destroy e001 0" in calls

    def test_the_default_stream_does_not_wait_for_itself(self, driver):
        assert driver.run(HEAD + "dlbridge.from_dlpack(Interface(stream=1))\n") == [
            "pointer 9 7100"
        ]

    def test_the_stream_asked_for_waits(self, driver):
        calls = driver.run(HEAD + "dlbridge.from_dlpack(Interface(stream=0x5000), stream=0x6000)\n")
        assert "wait 6000 e001" in calls
        calls = driver.run(HEAD + "dlbridge.from_dlpack(Interface(stream=0x5000), stream=-1)\n")
        assert not any(call.startswith("wait") for call in calls)

    @pytest.mark.parametrize("stream", [0, -1, -5, "x", 1.5, 2**70])
    def test_a_wrong_stream_is_a_buffer_error(self, stream):
        with pytest.raises(
            BufferError, match=r"stream: expected None, 1 \(legacy default.*, found "
        ):
            dlbridge.from_dlpack(Interface(stream=stream))


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
        dlbridge.from_dlpack(Interface(**changes))


def test_torch_on_the_host_is_no_device_memory():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert dlbridge.inspect(torch.zeros(3)).protocol == "C exchange API"
