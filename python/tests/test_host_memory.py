"""Memory that the host can read although it is not the CPU's: pinned, and managed.

A copy in ordinary memory is made of it, on either side; of other devices' memory none is.
"""

from __future__ import annotations

import numpy as np
import pytest

import dlbridge
import hostile
from hostile import IS_COPIED, LEGACY, READ_ONLY, VERSIONED, Managed, name_of, producer_of, read

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
