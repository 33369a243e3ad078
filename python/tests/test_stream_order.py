"""Streams: who waits for whom, by which functions of the driver.

No GPU has run this: device tensors are descriptors that nobody reads, and the driver is played.
"""

from __future__ import annotations

import ctypes

import pytest

import dlbridge
import fake_driver
from hostile import Managed

CUDA, ROCM = 2, 10


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return fake_driver.Driver(tmp_path_factory.mktemp("driver"))


def on(kind: int) -> dlbridge.Tensor:
    return dlbridge.from_dlpack(Managed(device=(kind, 0)).capsule())


class TestWithoutDriver:
    @pytest.mark.parametrize("stream", [2, 4096])
    def test_ordering_says_that_there_is_none(self, stream):
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            pass
        else:
            pytest.skip("this machine has a driver")
        tensor = on(CUDA)
        with pytest.raises(
            BufferError, match="stream: expected a CUDA driver to order work with, found none"
        ):
            tensor.__dlpack__(stream=stream)
        assert tensor.__dlpack__(stream=1)

    def test_rocm_is_not_ordered_here(self):
        tensor = on(ROCM)
        with pytest.raises(
            BufferError, match="whose streams alone are ordered here, found work on rocm:0"
        ):
            tensor.__dlpack__(stream=4096)

    def test_host_memory_opens_no_driver(self, driver):
        assert driver.run("import dlbridge, numpy\nnumpy.asarray(dlbridge.zeros(3))\n") == []
        code = "import dlbridge, sys\ndlbridge.from_dlpack(b'abc').__dlpack__(max_version=(1, 3))\n"
        code += "print('libcuda' in open('/proc/self/maps').read())\n"
        driver.run(code)
        assert driver.output == "False\n"


HEAD = """
import dlbridge
from hostile import Managed
from test_streams import Device
"""


class TestOrder:
    """Which functions of the driver are called, for whom."""

    def test_the_consumers_stream_waits_for_an_event_of_the_producers(self, driver):
        calls = driver.run(
            HEAD + "t = dlbridge.from_dlpack(Device((2, 1)), stream=0x5000)\n"
            "t.__dlpack__(stream=0x6000)\nt.__dlpack__(stream=0x6000)\n"
        )
        record = ["context_of 5000 0", "push c100 0", "create e001 2"]
        record += ["record e001 5000", "pop 0 0"]
        wait = ["context_of 6000 0", "push c100 0", "wait 6000 e001", "pop 0 0"]
        destroy = ["push c100 0", "destroy e001 0", "pop 0 0"]
        assert calls == record + wait + wait + destroy

    def test_default_streams_are_those_of_the_devices_context(self, driver):
        calls = driver.run(
            HEAD + "t = dlbridge.from_dlpack(Device((2, 1)), stream=2)\nt.__dlpack__(stream=None)\n"
        )
        context = ["device 1 0", "retain 1 0", "push c001 0"]
        record = [*context, "create e001 2", "record e001 2", "pop 0 0"]
        wait = [*context, "wait 1 e001", "pop 0 0"]
        assert calls == [*record, *wait, "push c001 0", "destroy e001 0", "pop 0 0"]

    def test_the_default_stream_is_recorded_when_another_asks(self, driver):
        calls = driver.run(
            HEAD + "t = dlbridge.from_dlpack(Device())\n"
            "t.__dlpack__()\nt.__dlpack__(stream=1)\nt.__dlpack__(stream=-1)\n"
            "t.__dlpack__(stream=0x6000)\n"
        )
        assert [call.split()[0] for call in calls] == [
            *["device", "retain", "push", "create", "record", "pop"],
            *["context_of", "push", "wait", "pop"],
            *["push", "destroy", "pop"],
        ]
        assert "record e001 1" in calls
        assert "wait 6000 e001" in calls

    def test_a_consumer_may_decline_to_wait(self, driver):
        calls = driver.run(
            HEAD + "t = dlbridge.from_dlpack(Device(), stream=0x5000)\nt.__dlpack__(stream=-1)\n"
        )
        assert not any(call.startswith("wait") for call in calls)
        calls = driver.run(
            HEAD + "t = dlbridge.from_dlpack(Device(), stream=-1)\nt.__dlpack__(stream=0x5000)\n"
        )
        assert calls == []

    def test_the_exchange_table_makes_the_default_stream_wait(self, driver):
        calls = driver.run(
            HEAD + "import ctypes\nfrom test_exchange_api import Table, pointer\n"
            "capsule = dlbridge.Tensor.__dlpack_c_exchange_api__\n"
            "table = Table.from_address(pointer(capsule, b'dlpack_exchange_api'))\n"
            "t = dlbridge.from_dlpack(Device(), stream=0x5000)\n"
            "raw, taken = ctypes.c_void_p(), ctypes.py_object()\n"
            "assert table.from_object(t, raw) == 0\n"
            "assert table.to_object(raw, taken) == 0\n"
        )
        assert "wait 1 e001" in calls

    def test_the_host_waits_where_the_host_reads(self, driver):
        head = HEAD + "t = dlbridge.from_dlpack(Device((13, 0)), stream=0x5000)\n"
        reads = [
            "t.__dlpack__(dl_device=(1, 0), max_version=(1, 3))",
            "t.__dlpack__(copy=True)",
            "assert memoryview(t).tolist() == [0, 1, 2]",
        ]
        for read_it in reads:
            calls = driver.run(head + read_it)
            assert "synchronize e001 0" in calls, read_it
            assert not any(call.startswith("wait") for call in calls)
        calls = driver.run(HEAD + "bytes(dlbridge.from_dlpack(Device((13, 0))))\n")
        assert "record e001 1" in calls
        assert "synchronize e001 0" in calls

    @pytest.mark.parametrize(("stream", "number"), [("", 1), (", stream=0x5000", 0x5000)])
    def test_the_host_waits_before_managed_memory_is_copied(self, driver, stream, number):
        calls = driver.run(
            HEAD + f"t = dlbridge.from_dlpack(Device((13, 0)), copy=True{stream})\n"
            "assert memoryview(t).tolist() == [0, 1, 2]\n"
        )
        assert f"record e001 {number:x}" in calls
        assert calls.index(f"record e001 {number:x}") < calls.index("synchronize e001 0")

    def test_the_stream_of_the_exchange_table_is_waited_for(self, driver):
        calls = driver.run(
            HEAD + "from test_streams import exchanging\n"
            "kind, asked, _ = exchanging((13, 0), stream=0x5000)\n"
            "dlbridge.from_dlpack(kind(), copy=True)\n"
            "print(asked)\n"
        )
        assert driver.output == "[(13, 0)]\n"
        assert "record e001 5000" in calls
        assert "synchronize e001 0" in calls

    @pytest.mark.parametrize(
        ("fails", "function"),
        [
            ("context_of", "cuStreamGetCtx"),
            ("push", "cuCtxPushCurrent"),
            ("create", "cuEventCreate"),
            ("record", "cuEventRecord"),
        ],
    )
    def test_an_error_of_the_driver_is_a_buffer_error(self, driver, fails, function):
        calls = driver.run(
            HEAD + "try:\n    dlbridge.from_dlpack(Device(), stream=0x5000)\n"
            "except BufferError as error:\n    print(error)\n",
            fails=fails,
        )
        assert driver.output == f"stream: {function} failed with CUDA_ERROR_INVALID_CONTEXT\n"
        created = sum(call.startswith("create") for call in calls)
        destroyed = sum(call.startswith("destroy") for call in calls)
        assert created == destroyed or fails == "create"

    def test_a_wait_that_fails_is_a_buffer_error(self, driver):
        driver.run(
            HEAD + "t = dlbridge.from_dlpack(Device(), stream=0x5000)\n"
            "try:\n    t.__dlpack__(stream=0x6000)\nexcept BufferError as error:\n"
            "    print(error)\n",
            fails="wait",
        )
        assert driver.output.startswith("stream: cuStreamWaitEvent failed with CUDA_ERROR_INVALID")
