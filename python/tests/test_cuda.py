"""Streams (who waits for whom, by which functions of the driver), memory that the host can read
although it is not the CPU's (pinned, and managed).

The tests need no GPU: the driver is a fake, and no code reads other memory of a device."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import dlbridge
import hostile
from hostile import IS_COPIED, LEGACY, READ_ONLY, VERSIONED, Managed, name_of, producer_of, read
from support import Driver

CUDA, ROCM = 2, 10


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return Driver(tmp_path_factory.mktemp("driver"))


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
from fake_cuda import stream
stream(), stream()  # numbers 0x5000 and 0x5001
"""
AT_WORK = HEAD + "import fake_cuda\nfake_cuda.work_on(0)\n"


class TestOrder:
    """Which functions of the driver are called, for whom."""

    def test_the_consumers_stream_waits_for_an_event_of_the_producers(self, driver):
        calls = driver.run(
            AT_WORK + "stream(1), stream(1)\n"
            "t = dlbridge.from_dlpack(Device((2, 1)), stream=0x5002)\n"
            "t.__dlpack__(stream=0x5003)\nt.__dlpack__(stream=0x5003)\n"
        )
        record = ["cuStreamGetCtx 5002 0", "cuCtxPushCurrent_v2 c001 0"]
        record += ["cuStreamIsCapturing 5002 0", "cuEventCreate 2 0"]
        record += ["cuEventRecord e001 5002", "cuCtxPopCurrent_v2 0 0"]
        wait = ["cuStreamGetCtx 5003 0", "cuCtxPushCurrent_v2 c001 0"]
        wait += ["cuStreamIsCapturing 5003 0"]
        wait += ["cuStreamWaitEvent 5003 e001", "cuCtxPopCurrent_v2 0 0"]
        destroy = ["cuCtxPushCurrent_v2 c001 0", "cuEventDestroy_v2 e001 0"]
        destroy += ["cuCtxPopCurrent_v2 0 0"]
        assert calls == record + wait + wait + destroy

    def test_default_streams_are_those_of_the_devices_context(self, driver):
        calls = driver.run(
            AT_WORK + "t = dlbridge.from_dlpack(Device((2, 1)), stream=2)\n"
            "t.__dlpack__(stream=None)\n"
        )
        retain = ["cuDeviceGet 1 0", "cuDevicePrimaryCtxRetain 1 0"]
        push, pop = "cuCtxPushCurrent_v2 c001 0", "cuCtxPopCurrent_v2 0 0"
        record = [push, "cuStreamIsCapturing 2 0", "cuEventCreate 2 0", "cuEventRecord e001 2", pop]
        wait = [push, "cuStreamWaitEvent 1 e001", pop]
        assert calls == [*retain, *record, *wait, push, "cuEventDestroy_v2 e001 0", pop]

    def test_the_default_stream_is_recorded_when_another_asks(self, driver):
        calls = driver.run(
            AT_WORK + "t = dlbridge.from_dlpack(Device())\n"
            "t.__dlpack__()\nt.__dlpack__(stream=1)\nt.__dlpack__(stream=-1)\n"
            "t.__dlpack__(stream=0x5001)\n"
        )
        assert [call.split()[0] for call in calls] == [
            *["cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2"],
            *["cuEventCreate", "cuEventRecord", "cuCtxPopCurrent_v2"],
            *["cuStreamGetCtx", "cuCtxPushCurrent_v2", "cuStreamIsCapturing"],
            *["cuStreamWaitEvent", "cuCtxPopCurrent_v2"],
            *["cuCtxPushCurrent_v2", "cuEventDestroy_v2", "cuCtxPopCurrent_v2"],
        ]
        assert "cuEventRecord e001 1" in calls
        assert "cuStreamWaitEvent 5001 e001" in calls

    def test_a_thread_without_a_current_context_orders_work(self, driver):
        calls = driver.run(
            HEAD + "import threading\n"
            "def work():\n"
            "    t = dlbridge.from_dlpack(Device((13, 0)), stream=0x5000)\n"
            "    t.__dlpack__(stream=0x5001)\n"
            "    memoryview(t).tolist()\n"
            "    fake_cuda.work_on(1)\n"
            "    dlbridge.from_dlpack(Device(), stream=0x5000).__dlpack__()\n"
            "    print(fake_cuda.device())\n"
            "import fake_cuda\n"
            "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\n"
        )
        assert driver.output == "1\n", "the former context is current again"
        assert "cuStreamWaitEvent 5001 e001" in calls
        assert "cuEventSynchronize e001 0" in calls
        assert calls.count("cuDevicePrimaryCtxRetain 0 0") == 1

    def test_a_consumer_may_decline_to_wait(self, driver):
        calls = driver.run(
            HEAD + "t = dlbridge.from_dlpack(Device(), stream=0x5000)\nt.__dlpack__(stream=-1)\n"
        )
        assert not any(call.startswith("cuStreamWaitEvent") for call in calls)
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
        assert "cuStreamWaitEvent 1 e001" in calls

    def test_the_host_waits_where_the_host_reads(self, driver):
        head = HEAD + "t = dlbridge.from_dlpack(Device((13, 0)), stream=0x5000)\n"
        reads = [
            "t.__dlpack__(dl_device=(1, 0), max_version=(1, 3))",
            "t.__dlpack__(copy=True)",
            "assert memoryview(t).tolist() == [0, 1, 2]",
        ]
        for read_it in reads:
            calls = driver.run(head + read_it)
            assert "cuEventSynchronize e001 0" in calls, read_it
            assert not any(call.startswith("cuStreamWaitEvent") for call in calls)
        calls = driver.run(HEAD + "bytes(dlbridge.from_dlpack(Device((13, 0))))\n")
        assert "cuEventRecord e001 1" in calls
        assert "cuEventSynchronize e001 0" in calls

    @pytest.mark.parametrize(("stream", "number"), [("", 1), (", stream=0x5000", 0x5000)])
    def test_the_host_waits_before_managed_memory_is_copied(self, driver, stream, number):
        calls = driver.run(
            HEAD + f"t = dlbridge.from_dlpack(Device((13, 0)), copy=True{stream})\n"
            "assert memoryview(t).tolist() == [0, 1, 2]\n"
        )
        record = calls.index(f"cuEventRecord e001 {number:x}")
        assert record < calls.index("cuEventSynchronize e001 0")

    def test_the_stream_of_the_exchange_table_is_waited_for(self, driver):
        calls = driver.run(
            HEAD + "from test_streams import exchanging\n"
            "kind, asked, _ = exchanging((13, 0), stream=0x5000)\n"
            "dlbridge.from_dlpack(kind(), copy=True)\n"
            "print(asked)\n"
        )
        assert driver.output == "[(13, 0)]\n"
        assert "cuEventRecord e001 5000" in calls
        assert "cuEventSynchronize e001 0" in calls

    @pytest.mark.parametrize(
        "function", ["cuStreamGetCtx", "cuCtxPushCurrent_v2", "cuEventCreate", "cuEventRecord"]
    )
    def test_an_error_of_the_driver_is_a_buffer_error(self, driver, function):
        calls = driver.run(
            HEAD + "try:\n    dlbridge.from_dlpack(Device(), stream=0x5000)\n"
            "except BufferError as error:\n    print(error)\n",
            fails=function,
        )
        name = function.removesuffix("_v2")
        assert driver.output == f"stream: {name} failed with CUDA_ERROR_UNKNOWN\n"
        created = sum(call.startswith("cuEventCreate") for call in calls)
        destroyed = sum(call.startswith("cuEventDestroy") for call in calls)
        assert created == destroyed or function == "cuEventCreate"

    def test_a_wait_that_fails_is_a_buffer_error(self, driver):
        driver.run(
            HEAD + "t = dlbridge.from_dlpack(Device(), stream=0x5000)\n"
            "try:\n    t.__dlpack__(stream=0x5001)\nexcept BufferError as error:\n"
            "    print(error)\n",
            fails="cuStreamWaitEvent",
        )
        assert driver.output.startswith("stream: cuStreamWaitEvent failed with CUDA_ERROR_UNKNOWN")


class TestCapture:
    """A capture stays whole where `torch.from_dlpack` leaves it whole."""

    def test_a_tensor_from_before_is_exported_inside(self, driver):
        calls = driver.run(
            HEAD + "import fake_cuda\n"
            "t = dlbridge.from_dlpack(Device(), stream=0x5000)\n"
            "fake_cuda.capture(0x5001)\nt.__dlpack__(stream=0x5001)\n"
            "print(fake_cuda.is_whole(0x5001))\nfake_cuda.end_capture(0x5001)\n"
        )
        assert driver.output == "True\n"
        assert "cuEventSynchronize e001 0" in calls, "the host waits"

    def test_a_tensor_from_inside_is_exported_afterwards(self, driver):
        driver.run(
            HEAD + "import fake_cuda\nfake_cuda.capture(0x5000)\n"
            "t = dlbridge.from_dlpack(Device(), stream=0x5000)\n"
            "t.__dlpack__(stream=0x5000)\n"
            "graph = fake_cuda.end_capture(0x5000)\n"
            "t.__dlpack__(stream=0x5001)\nt.__dlpack__()\n"
            "fake_cuda.launch(graph, 0x5000)\nprint('exported')\n"
        )
        assert driver.output == "exported\n"


HOST = {"cuda_host": 3, "rocm_host": 11, "cuda_managed": 13, "tpu_host": 20}
ELSEWHERE = {"cuda": 2, "rocm": 10, "opencl": 4, "metal": 8, "oneapi": 14, "kind99": 99}


no_double_release = hostile.no_double_release


@pytest.fixture(params=HOST.values(), ids=HOST)
def host(request):
    return (request.param, 0)


@pytest.fixture(params=ELSEWHERE.values(), ids=ELSEWHERE)
def elsewhere(request):
    return (request.param, 0)


class TestExport:
    def test_without_a_device_asked_for_it_stays_where_it_is(self, host):
        made = Managed(device=host)
        tensor = dlbridge.from_dlpack(made.capsule())
        for device in (None, host, (host[0], None)):
            raw = read(tensor.__dlpack__(max_version=(1, 3), dl_device=device, copy=False))
            assert (raw.tensor.device_type, raw.tensor.data, raw.flags) == (host[0], made.base, 0)

    @pytest.mark.parametrize("copy", [None, True])
    @pytest.mark.parametrize("device", [(1, 0), (1, None)])
    @pytest.mark.parametrize("flags", [0, READ_ONLY])
    def test_asked_for_the_cpu_it_is_copied_and_says_so(self, host, device, copy, flags):
        made = Managed(device=host, flags=flags)
        tensor = dlbridge.from_dlpack(made.capsule())
        capsule = tensor.__dlpack__(max_version=(1, 3), dl_device=device, copy=copy)
        raw = read(capsule)
        assert (name_of(capsule), raw.flags) == (VERSIONED, IS_COPIED)
        assert (raw.tensor.device_type, raw.tensor.device_id) == (1, 0)
        assert raw.tensor.data != made.base
        array = np.from_dlpack(tensor, device="cpu", copy=copy)
        assert (array.tolist(), array.flags.writeable) == ([0, 1, 2], True)

    def test_an_old_consumer_gets_the_copy_without_a_word(self, host):
        tensor = dlbridge.from_dlpack(Managed(device=host).capsule())
        capsule = tensor.__dlpack__(dl_device=(1, 0))
        assert (name_of(capsule), read(capsule).tensor.device_type) == (LEGACY, 1)

    def test_a_copy_is_ordinary_memory(self, host):
        made = Managed(device=host)
        raw = read(dlbridge.from_dlpack(made.capsule()).__dlpack__(max_version=(1, 3), copy=True))
        assert (raw.tensor.device_type, raw.flags) == (1, IS_COPIED)

    def test_where_no_copy_is_allowed_it_is_a_buffer_error(self, host):
        tensor = dlbridge.from_dlpack(Managed(device=host).capsule())
        with pytest.raises(BufferError, match=f"dl_device: expected {tensor.device}, .* found cpu"):
            tensor.__dlpack__(dl_device=(1, 0), copy=False)

    @pytest.mark.parametrize("copy", [None, False, True])
    @pytest.mark.parametrize("device", [(1, 1), (2, 0), (99, 0)])
    def test_another_device_is_a_buffer_error(self, host, device, copy):
        tensor = dlbridge.from_dlpack(Managed(device=host).capsule())
        with pytest.raises(BufferError, match="dl_device: expected"):
            tensor.__dlpack__(dl_device=device, copy=copy)

    @pytest.mark.parametrize("copy", [None, False, True])
    def test_memory_that_the_host_cannot_read_is_a_buffer_error(self, elsewhere, copy):
        tensor = dlbridge.from_dlpack(Managed(device=elsewhere).capsule())
        with pytest.raises(BufferError, match=f"dl_device: expected {tensor.device}, .* found cpu"):
            tensor.__dlpack__(dl_device=(1, 0), copy=copy)
        with pytest.raises(BufferError, match=f"{tensor.device}"):
            tensor.__dlpack__(copy=True)


class TestImport:
    def test_without_a_device_asked_for_it_stays_where_it_is(self, host):
        made = Managed(device=host)
        tensor = dlbridge.from_dlpack(producer_of(made), copy=False)
        assert (tensor.__dlpack_device__(), tensor.data_ptr) == (host, made.base)

    @pytest.mark.parametrize("copy", [None, True])
    @pytest.mark.parametrize("legacy", [False, True])
    def test_asked_for_the_cpu_it_is_copied_here(self, host, copy, legacy):
        made = Managed(device=host, legacy=legacy)
        producer = producer_of(made)
        tensor = dlbridge.from_dlpack(producer, device="cpu", copy=copy)
        assert (tensor.device, tensor.readonly) == ("cpu", False)
        assert np.asarray(tensor).tolist() == [0, 1, 2]
        assert tensor.data_ptr != made.base
        assert (len(producer.calls), made.releases) == (1, 1)

    def test_a_bare_capsule_is_copied_as_well(self, host):
        made = Managed(device=host)
        assert dlbridge.from_dlpack(made.capsule(), device="cpu").device == "cpu"
        assert made.releases == 1

    def test_where_no_copy_is_allowed_the_producer_is_asked(self, host):
        made = Managed(device=host)

        def answer(dl_device=None, copy=None, **_keywords):
            if dl_device is not None:
                assert (dl_device, copy) == ((1, 0), False)
                raise BufferError("not without a copy")
            return made.capsule()

        producer = hostile.Producer(answer)
        with pytest.raises(
            BufferError, match=r"expected cpu, found .*, and the producer refused"
        ) as raised:
            dlbridge.from_dlpack(producer, device="cpu", copy=False)
        assert str(raised.value.__cause__) == "not without a copy"
        assert made.releases == 1

    def test_a_copy_without_a_device_is_ordinary_memory(self, host):
        made = Managed(device=host)
        tensor = dlbridge.from_dlpack(producer_of(made), copy=True)
        assert (tensor.device, made.releases) == ("cpu", 1)

    @pytest.mark.parametrize("copy", [None, False, True])
    def test_memory_that_the_host_cannot_read_is_the_producers_to_move(self, elsewhere, copy):
        made = Managed(device=elsewhere)

        def answer(dl_device=None, **_keywords):
            if dl_device is not None:
                raise BufferError("not there")
            return made.capsule()

        producer = hostile.Producer(answer)
        with pytest.raises(BufferError, match=r"expected cpu, found .*, and the producer refused"):
            dlbridge.from_dlpack(producer, device="cpu", copy=copy)
        assert (len(producer.calls), made.releases) == (2, 1)


def test_numpy_reads_pinned_memory_in_place():
    """NumPy takes three of the four kinds without asking for the CPU."""
    for kind in (3, 11, 13):
        made = Managed(device=(kind, 0))
        array = np.from_dlpack(dlbridge.from_dlpack(made.capsule()))
        assert (array.ctypes.data, array.tolist()) == (made.base, [0, 1, 2])
