"""Streams: the numbers that mean one, and what producers are told of them.

The tests need no GPU: no code reads the device memory of their tensors.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import dlbridge
import hostile
from hostile import Managed, Producer, new_capsule, read
from test_exchange_api import FromObject, Stream, Table

CUDA, CUDA_HOST, ROCM, ROCM_HOST, MANAGED = 2, 3, 10, 11, 13
VERSION = dlbridge.DLPACK_VERSION


no_double_release = hostile.no_double_release


def on(kind: int, **fields) -> dlbridge.Tensor:
    return dlbridge.from_dlpack(Managed(device=(kind, 0), **fields).capsule())


class Handle:
    """A stream of cuda.core and its like."""

    def __init__(self, *answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


class OldHandle:
    """The first cuda.core had a property."""

    __cuda_stream__ = (0, 0x5000)


class TestNumbersOnExport:
    """`__dlpack__(stream=...)` of our tensors, whose work the driver has nothing to do with."""

    @pytest.mark.parametrize(
        ("kind", "good"),
        [
            (1, [None, -1]),
            (CUDA, [None, -1, 1]),
            (CUDA_HOST, [None, -1]),
            (MANAGED, [None, -1, 1]),
            (ROCM, [None, -1, 0]),
            (ROCM_HOST, [None, -1]),
            (8, [None, -1]),
            (14, [None, -1]),
            (99, [None, -1]),
        ],
    )
    def test_what_means_nothing_or_the_default_is_taken(self, kind, good):
        tensor = on(kind)
        for stream in good:
            capsule = tensor.__dlpack__(stream=stream, max_version=(1, 3))
            assert read(capsule).tensor.device_type == kind

    @pytest.mark.parametrize(
        ("kind", "bad", "expected"),
        [
            (1, [0, 1, 2, 4096], "expected None or -1 for cpu"),
            (CUDA, [0], r"expected None, -1, 1 \(legacy default\), 2 .* or an address for cuda:0"),
            (MANAGED, [0], r"expected None, -1, 1 .* for cuda_managed:0"),
            (CUDA_HOST, [0, 1, 2, 4096], "expected None or -1 for cuda_host:0"),
            (ROCM, [1, 2], r"expected None, -1, 0 \(default\) or an address above 2 for rocm:0"),
            (ROCM_HOST, [0, 1, 4096], "expected None or -1 for rocm_host:0"),
            (14, [0, 1, 4096], "expected None or -1 for oneapi:0"),
            (99, [0, 1, 4096], "expected None or -1 for kind99:0"),
        ],
    )
    def test_what_means_nothing_there_is_a_buffer_error(self, kind, bad, expected):
        tensor = on(kind)
        for stream in bad:
            with pytest.raises(BufferError, match=f"stream: {expected}, found {stream}"):
                tensor.__dlpack__(stream=stream)

    @pytest.mark.parametrize("stream", [-2, 1.5, "x", object(), 2**80, Handle(), Handle(1, 5)])
    @pytest.mark.parametrize("kind", [1, CUDA, ROCM])
    def test_what_is_no_stream_at_all_is_a_buffer_error(self, kind, stream):
        tensor = on(kind)
        with pytest.raises(BufferError, match=r"stream: .*expected .* found"):
            tensor.__dlpack__(stream=stream)

    def test_an_interrupt_is_no_refusal(self):
        class Broken:
            def __cuda_stream__(self):
                raise KeyboardInterrupt

        tensor = on(CUDA)
        with pytest.raises(KeyboardInterrupt):
            tensor.__dlpack__(stream=Broken())

    def test_the_stream_is_one_of_the_device_asked_for(self):
        pinned = on(MANAGED)
        with pytest.raises(BufferError, match="stream: expected None or -1 for cpu, found 1"):
            pinned.__dlpack__(stream=1, dl_device=(1, 0))

    def test_memory_whose_work_nobody_knows_is_ready(self):
        class Maker:
            """Gives memory on another device, through no stream."""

            def __dlpack__(self, **_keywords):
                return Managed(device=(CUDA, 0)).capsule()

            def __dlpack_device__(self):
                return (CUDA, 0)

        tensor = dlbridge.from_dlpack(Maker(), stream=-1)
        for stream in (None, -1, 1, 2, 4096, Handle(0, 4096)):
            tensor.__dlpack__(stream=stream)


class Device:
    """A producer on a device; `calls` keeps the keywords that it was asked with."""

    def __init__(self, device=(CUDA, 0), knows=("stream", "max_version", "copy")):
        self.device, self.knows, self.calls, self.asked = device, knows, [], 0
        self.made = Managed(device=(device[0], device[1] or 0), legacy="copy" not in knows)

    def __dlpack__(self, **keywords):
        self.calls.append(keywords)
        for name in keywords:
            if name not in self.knows:
                raise TypeError(f"__dlpack__() got an unexpected keyword argument {name!r}")
        return self.made.capsule()

    def __dlpack_device__(self):
        self.asked += 1
        return self.device


class TestNumbersOnImport:
    @pytest.mark.parametrize(
        ("device", "stream", "number"),
        [
            ((CUDA, 0), 1, 1),
            ((CUDA, 0), 4096, 4096),
            ((CUDA, 0), -1, -1),
            ((CUDA, 0), Handle(0, 4096), 4096),
            ((CUDA, 0), Handle(0, 0), 1),
            ((CUDA, 0), Handle(0, 1), 1),
            ((MANAGED, 0), 1, 1),
            ((ROCM, 0), 0, 0),
            ((ROCM, 0), Handle(0, 0), 0),
            ((ROCM, 0), -1, -1),
        ],
    )
    def test_a_producer_is_told_the_number(self, device, stream, number):
        producer = Device(device)
        if number > 2:
            with pytest.raises(
                BufferError, match="expected a CUDA driver to order work with, found none"
            ):
                dlbridge.from_dlpack(producer, stream=stream)
        else:
            dlbridge.from_dlpack(producer, stream=stream)
        assert producer.calls == [{"stream": number, "max_version": VERSION}]

    @pytest.mark.parametrize("device", [(1, 0), (1, None), (CUDA_HOST, 0), (8, 0)])
    @pytest.mark.parametrize("stream", [None, -1])
    def test_without_streams_a_producer_hears_of_none(self, device, stream):
        producer = Device(device)
        dlbridge.from_dlpack(producer, stream=stream)
        assert producer.calls == [{"max_version": VERSION}]

    def test_unless_it_is_asked_for_a_producer_hears_of_none(self):
        producer = Device()
        dlbridge.from_dlpack(producer)
        assert (producer.calls, producer.asked) == ([{"max_version": VERSION}], 0)

    @pytest.mark.parametrize(
        ("device", "stream", "found"),
        [
            ((CUDA, 0), 0, "stream: expected None, -1, 1.*, found 0"),
            ((ROCM, 0), 1, "stream: expected None, -1, 0.*, found 1"),
            ((ROCM, 0), 2, "stream: expected None, -1, 0.*, found 2"),
            ((1, 0), 1, "stream: expected None or -1 for cpu.*, found 1"),
            ((CUDA_HOST, 0), 4096, "stream: expected None or -1 for cuda_host.*, found 4096"),
            (
                (CUDA, 0),
                -2,
                "stream: expected a number from -1 on, or an object with __cuda_stream__, found -2",
            ),
            (
                (CUDA, 0),
                Handle(1, 4096),
                r"__cuda_stream__: expected \(0, handle\), found \(1, 4096\)",
            ),
            ((CUDA, 0), Handle(0), "__cuda_stream__: expected .*, found"),
            ((CUDA, 0), Handle(0, -1), "__cuda_stream__: expected .*, found"),
            ((CUDA, 0), Handle(0, "x"), "__cuda_stream__: expected .*, found"),
        ],
    )
    def test_a_wrong_stream_is_a_buffer_error_before_anybody_is_asked(self, device, stream, found):
        producer = Device(device)
        with pytest.raises(BufferError, match=found):
            dlbridge.from_dlpack(producer, stream=stream)
        assert producer.calls == []

    @pytest.mark.parametrize("stream", ["x", 1.5, object()])
    def test_an_object_that_is_no_stream_is_a_type_error_before_the_producer_is_asked(self, stream):
        producer = Device((CUDA, 0))
        with pytest.raises(TypeError, match=r"stream: expected a number from -1 on, .*, found "):
            dlbridge.from_dlpack(producer, stream=stream)
        assert producer.calls == []

    def test_an_old_property_is_understood(self):
        producer = Device()
        with pytest.raises(
            BufferError, match="expected a CUDA driver to order work with, found none"
        ):
            dlbridge.from_dlpack(producer, stream=OldHandle())
        assert producer.calls[0]["stream"] == 0x5000

    def test_a_producer_of_the_first_standard_is_told_the_stream_alone(self):
        producer = Device(knows=("stream",))
        dlbridge.from_dlpack(producer, stream=1)
        assert producer.calls == [{"stream": 1, "max_version": VERSION}, {"stream": 1}]

    def test_a_producer_that_knows_no_stream_is_not_asked_without(self):
        producer = Device(knows=())
        with pytest.raises(TypeError, match="unexpected keyword"):
            dlbridge.from_dlpack(producer, stream=1)
        assert all("stream" in call for call in producer.calls)

    def test_its_own_exception_comes_out(self):
        class Busy(Device):
            def __dlpack__(self, **keywords):
                raise RuntimeError("busy")

        with pytest.raises(RuntimeError, match="busy"):
            dlbridge.from_dlpack(Busy(), stream=1)

    @pytest.mark.parametrize("device", [None, 2, (2,), (2, 0, 0), ("cuda", 0), [2, 0]])
    def test_a_device_that_is_no_pair_of_numbers_is_a_type_error(self, device):
        producer = Device()
        producer.device = device
        with pytest.raises(TypeError, match=r"__dlpack_device__: expected .*, found"):
            dlbridge.from_dlpack(producer, stream=1)
        assert producer.calls == []

    def test_a_copy_is_asked_for_with_the_stream(self):
        producer = Device()
        with pytest.raises(
            BufferError, match="expected a copy on cuda:0, but the producer refused"
        ):
            dlbridge.from_dlpack(producer, stream=1, copy=True)
        asked = {"stream": 1, "max_version": VERSION, "dl_device": (CUDA, 0), "copy": True}
        assert producer.calls[1:] == [asked]

    def test_a_stream_of_the_other_device_is_refused(self):
        with pytest.raises(BufferError, match="stream: expected None or -1 for cpu, found 1"):
            dlbridge.from_dlpack(Device(), stream=1, device="cpu")

    @pytest.mark.parametrize("stream", [1, -1])
    def test_a_capsule_was_made_for_the_default_stream(self, stream):
        made = Managed(device=(CUDA, 0))
        assert dlbridge.from_dlpack(made.capsule(), stream=stream).device == "cuda:0"

    def test_a_capsule_cannot_be_told_of_another(self):
        made = Managed(device=(CUDA, 0))
        capsule = made.capsule()
        with pytest.raises(
            BufferError,
            match=r"with __dlpack_device__.*, found memory on cuda:0 from a capsule",
        ):
            dlbridge.from_dlpack(capsule, stream=2)
        assert made.releases == 1

    def test_host_arrays_of_frameworks_take_none_and_no_sync(self):
        array = np.arange(3.0)
        for stream in (None, -1):
            assert dlbridge.from_dlpack(array, stream=stream).data_ptr == array.ctypes.data
        with pytest.raises(BufferError, match="expected None or -1 for cpu, found 1"):
            dlbridge.from_dlpack(array, stream=1)


def exchanging(*arguments, **keywords):
    """A class with an exchange table, that stands where no class without one was remembered."""
    while True:
        kind, asked, dlpack = exchanger(*arguments, **keywords)
        KEPT.append(kind)
        if dlbridge.inspect(kind()).protocol == "C exchange API":
            return kind, asked, dlpack


KEPT = []
"""Tables are for ever."""


def exchanger(device, stream=None, status=0):
    """A class with an exchange table; `asked` is what its stream was asked about."""
    made = [Managed(device=device) for _ in range(8)]
    asked, dlpack = [], []

    def from_object(_object, out):
        out[0] = ctypes.addressof(made.pop().raw)
        return 0

    def current(kind, number, out):
        asked.append((kind, number))
        if stream is not None:
            out[0] = stream
        return status

    class Producer:
        def __dlpack__(self, **keywords):
            dlpack.append(keywords)
            return made.pop().capsule()

        def __dlpack_device__(self):
            return device

    table = Table(major=1, minor=3, from_object=FromObject(from_object), stream=Stream(current))
    Producer.kept = table
    capsule = new_capsule(ctypes.addressof(table), b"dlpack_exchange_api")
    Producer.__dlpack_c_exchange_api__ = capsule
    return Producer, asked, dlpack


class TestExchange:
    def test_the_producers_stream_is_asked_for_on_its_own_device(self):
        kind, asked, dlpack = exchanging((CUDA, 3))
        tensor = dlbridge.from_dlpack(kind())
        assert (asked, dlpack) == ([(CUDA, 3)], [])
        # What was left as it is means the default stream, which needs no driver to be waited for.
        tensor.__dlpack__(stream=1)

    @pytest.mark.parametrize("device", [(1, 0), (CUDA_HOST, 0), (8, 0)])
    def test_without_streams_no_stream_is_requested(self, device):
        kind, asked, _ = exchanging(device, status=-1)
        dlbridge.from_dlpack(kind())
        assert asked == []

    def test_a_failure_without_a_reason_is_a_buffer_error(self):
        kind, _, _ = exchanging((CUDA, 0), status=-1)
        with pytest.raises(BufferError, match="exchange table failed without a reason"):
            dlbridge.from_dlpack(kind())

    def test_a_named_stream_is_ordered_behind_that_of_the_table(self):
        kind, asked, dlpack = exchanging((CUDA, 0))
        # The default stream need not wait for itself, so no driver is needed.
        dlbridge.from_dlpack(kind(), stream=1)
        assert (asked, dlpack) == ([(CUDA, 0)], [])

    def test_a_producer_on_rocm_orders_its_streams_itself(self):
        kind, asked, dlpack = exchanging((ROCM, 0))
        dlbridge.from_dlpack(kind(), stream=0)
        assert (asked, dlpack) == ([], [{"stream": 0, "max_version": VERSION}])

    def test_no_sync_is_what_the_table_gives(self):
        kind, asked, dlpack = exchanging((CUDA, 0))
        dlbridge.from_dlpack(kind(), stream=-1)
        assert (asked, dlpack) == ([], [])

    def test_torch_on_the_host_is_imported_as_before(self):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        tensor = torch.arange(3)
        for stream in (None, -1):
            assert dlbridge.from_dlpack(tensor, stream=stream).data_ptr == tensor.data_ptr()
        with pytest.raises(BufferError, match="expected None or -1"):
            dlbridge.from_dlpack(tensor, stream=1)


def test_a_producer_is_asked_once_for_its_device():
    producer = Producer(lambda **_keywords: Managed().capsule(), device=(1, 0))
    dlbridge.from_dlpack(producer, stream=-1)
    assert producer.calls == [{"max_version": VERSION}]
