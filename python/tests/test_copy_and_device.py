"""`from_dlpack` with a copy or a device asked for."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import dlbridge
import hostile
from hostile import IS_COPIED, READ_ONLY, Managed, name_of, producer_of
from support import arange, fill


def of_numpy():
    return np.arange(4, dtype="float32")


def of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.arange(4, dtype=torch.float32)


def of_jax():
    jax = pytest.importorskip("jax.numpy", reason="jax is not installed")
    return jax.arange(4, dtype="float32")


def of_pyarrow():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return pyarrow.array(of_numpy())


def of_pyarrow_tensor():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return pyarrow.Tensor.from_numpy(of_numpy())


def of_tvm_ffi():
    tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed")
    return tvm_ffi.from_dlpack(of_numpy())


def of_array_api_strict():
    strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
    return strict.arange(4, dtype=strict.float32)


def of_rust():
    return arange(4, dtype="float32")


MAKERS = [
    of_numpy,
    of_torch,
    of_jax,
    of_pyarrow,
    of_pyarrow_tensor,
    of_tvm_ffi,
    of_array_api_strict,
    of_rust,
]


@pytest.fixture(params=MAKERS, ids=lambda maker: maker.__name__.removeprefix("of_"))
def source(request):
    return request.param()


no_double_release = hostile.no_double_release


HOST = pytest.mark.parametrize("device", [None, "cpu", "cpu:0"])


class TestEveryFramework:
    @HOST
    @pytest.mark.parametrize("copy", [None, False])
    def test_its_own_memory_is_imported_unless_a_copy_is_requested(self, source, copy, device):
        plain = dlbridge.from_dlpack(source)
        tensor = dlbridge.from_dlpack(source, copy=copy, device=device)
        assert tensor.data_ptr == plain.data_ptr
        assert (tensor.readonly, tensor.device) == (plain.readonly, "cpu")
        assert not dlbridge.inspect(source).copied

    @HOST
    def test_a_copy_is_other_memory_writable_and_aligned(self, source, device):
        plain = dlbridge.from_dlpack(source)
        tensor = dlbridge.from_dlpack(source, copy=True, device=device)
        assert tensor.data_ptr != plain.data_ptr
        assert tensor.data_ptr % 64 == 0
        assert not tensor.readonly
        assert np.from_dlpack(tensor).tolist() == [0, 1, 2, 3]
        fill(tensor, 9)
        assert dlbridge.from_dlpack(source).data_ptr == plain.data_ptr
        assert np.from_dlpack(dlbridge.from_dlpack(source)).tolist() == [0, 1, 2, 3]

    @pytest.mark.parametrize("copy", [None, False, True])
    def test_a_gpu_that_it_cannot_reach_is_a_buffer_error_with_its_own_words(self, source, copy):
        with pytest.raises(
            BufferError, match=r"device: expected cuda:9, found .*, and the producer refused"
        ) as error:
            dlbridge.from_dlpack(source, device="cuda:9", copy=copy)
        assert isinstance(error.value.__cause__, Exception)
        assert str(error.value.__cause__)

    @pytest.mark.parametrize("device", ["gpu", "", "cpu:x", "CPU", "cuda:", "cuda:0:1", "2"])
    def test_a_device_without_such_a_name_is_a_value_error(self, source, device):
        with pytest.raises(ValueError, match=f'device: expected a known name, found "{device}"'):
            dlbridge.from_dlpack(source, device=device)


@pytest.mark.parametrize("keywords", [{"device": 1}, {"device": 1.5}, {"copy": "no"}])
def test_an_option_of_another_type_is_a_type_error(keywords):
    with pytest.raises(TypeError) as raised:
        dlbridge.from_dlpack(of_numpy(), **keywords)
    # PyO3 names the argument in a note, which exceptions have since 3.11.
    assert next(iter(keywords)) in "".join(traceback.format_exception(raised.value))


def test_options_have_names():
    with pytest.raises(TypeError, match="positional"):
        dlbridge.from_dlpack(of_numpy(), "cpu")


class TestCopies:
    def test_a_strided_source_becomes_contiguous(self):
        array = np.arange(24, dtype="int16").reshape(4, 6)[::-1, ::2]
        tensor = dlbridge.from_dlpack(array, copy=True)
        assert (tensor.shape, tensor.strides) == ((4, 3), (3, 1))
        assert np.from_dlpack(tensor).tolist() == array.tolist()

    def test_a_broadcast_source_gets_a_place_for_each_element(self):
        tensor = dlbridge.from_dlpack(np.broadcast_to(np.float32(3), (2, 3)), copy=True)
        assert (tensor.strides, tensor.readonly) == ((3, 1), False)
        assert np.from_dlpack(tensor).tolist() == [[3, 3, 3], [3, 3, 3]]

    def test_an_old_producer_that_knows_no_copy_is_copied_here(self):
        made = Managed(legacy=True)

        class Old:
            def __dlpack__(self):
                return made.capsule()

        tensor = dlbridge.from_dlpack(Old(), copy=True, device="cpu")
        assert made.releases == 1
        assert np.from_dlpack(tensor).tolist() == [0, 1, 2]

    @pytest.mark.parametrize("legacy", [False, True])
    def test_a_bare_capsule_is_copied_and_released(self, legacy):
        made = Managed(legacy=legacy)
        capsule = made.capsule()
        tensor = dlbridge.from_dlpack(capsule, copy=True)
        assert tensor.data_ptr != made.base
        assert name_of(capsule).startswith(b"used_")
        assert made.releases == 1

    def test_a_copy_that_the_producer_may_keep_is_copied(self):
        made = Managed(flags=IS_COPIED)
        tensor = dlbridge.from_dlpack(producer_of(made), copy=True)
        assert tensor.data_ptr != made.base
        assert made.releases == 1

    def test_a_copy_where_none_was_allowed_is_refused_and_released(self):
        made = Managed(flags=IS_COPIED)
        with pytest.raises(
            BufferError, match="copy: expected the producer's own memory, found a copy"
        ):
            dlbridge.from_dlpack(producer_of(made), copy=False)
        assert made.releases == 1

    def test_a_producer_is_asked_once_for_what_is_done_here(self):
        made = Managed()
        producer = producer_of(made)
        dlbridge.from_dlpack(producer, copy=True, device="cpu")
        assert (len(producer.calls), made.releases) == (1, 1)

    def test_packed_elements_are_copied_where_they_lie_side_by_side(self):
        made = Managed(dtype=(17, 4, 1), shape=[8])
        tensor = dlbridge.from_dlpack(producer_of(made), copy=True)
        assert (tensor.dtype, tensor.nbytes) == ("float4_e2m1fn", 4)
        strided = Managed(dtype=(17, 4, 1), shape=[4], strides=[2])
        with pytest.raises(
            BufferError, match="expected elements that have an address, found packed"
        ):
            dlbridge.from_dlpack(producer_of(strided), copy=True)
        assert strided.releases == 1


class Roaming:
    """A producer on one device that can answer for another."""

    def __init__(self, here, there):
        self.here, self.there, self.calls = here, there, []

    def __dlpack__(self, *, max_version=None, dl_device=None, copy=None):
        self.calls.append((max_version, dl_device, copy))
        if dl_device is None:
            return self.here.capsule()
        if isinstance(self.there, BaseException):
            raise self.there
        return self.there.capsule() if isinstance(self.there, Managed) else self.there

    def __dlpack_device__(self):
        return (2, 0)


class TestDevices:
    @pytest.mark.parametrize("copy", [None, False, True])
    def test_a_producer_that_can_go_there_is_asked_to(self, copy):
        here, there = Managed(device=(2, 0)), Managed()
        producer = Roaming(here, there)
        tensor = dlbridge.from_dlpack(producer, device="cpu", copy=copy)
        assert (tensor.device, tensor.data_ptr) == ("cpu", there.base)
        version = dlbridge.DLPACK_VERSION
        assert producer.calls == [(version, None, None), (version, (1, 0), copy)]
        assert (here.releases, there.releases) == (1, 0)

    def test_a_copy_on_a_gpu_is_left_to_the_producer(self):
        here, there = Managed(device=(2, 1)), Managed(device=(2, 1), flags=IS_COPIED)
        producer = Roaming(here, there)
        tensor = dlbridge.from_dlpack(producer, copy=True)
        assert (tensor.device, tensor.data_ptr) == ("cuda:1", there.base)
        assert producer.calls[1:] == [(dlbridge.DLPACK_VERSION, (2, 1), True)]

    def test_a_copy_that_a_producer_refuses_is_an_error_about_the_copy(self):
        producer = Roaming(Managed(device=(2, 1)), RuntimeError("no copies"))
        with pytest.raises(BufferError, match=r"copy: expected a copy on cuda:1, .*x\.clone\(\)"):
            dlbridge.from_dlpack(producer, copy=True)

    def test_an_answer_on_another_device_is_refused_and_released(self):
        here, there = Managed(device=(2, 0)), Managed(device=(2, 3))
        with pytest.raises(BufferError, match="expected cpu, found cuda:3 from the producer"):
            dlbridge.from_dlpack(Roaming(here, there), device="cpu")
        assert (here.releases, there.releases) == (1, 1)

    def test_a_wrong_answer_is_refused_and_released(self):
        here, there = Managed(device=(2, 0)), Managed(ndim=-1)
        with pytest.raises(BufferError, match="ndim"):
            dlbridge.from_dlpack(Roaming(here, there), device="cpu")
        assert (here.releases, there.releases) == (1, 1)
        with pytest.raises(TypeError, match="capsule: expected"):
            dlbridge.from_dlpack(Roaming(Managed(device=(2, 0)), 42), device="cpu")

    @pytest.mark.parametrize(
        "failure", [BufferError("no"), RuntimeError("no GPU"), NotImplementedError("later")]
    )
    def test_the_producers_refusal_is_the_cause(self, failure):
        here = Managed(device=(2, 0))
        with pytest.raises(
            BufferError, match=r"expected cpu, found .*, and the producer refused"
        ) as error:
            dlbridge.from_dlpack(Roaming(here, failure), device="cpu")
        assert error.value.__cause__ is failure
        assert here.releases == 1

    def test_a_producer_that_knows_no_device_is_a_buffer_error(self):
        made = Managed(legacy=True, device=(2, 0))

        class Old:
            def __dlpack__(self, stream=None):
                return made.capsule()

        with pytest.raises(
            BufferError, match=r"expected cpu, found .*, and the producer refused"
        ) as error:
            dlbridge.from_dlpack(Old(), device="cpu")
        assert isinstance(error.value.__cause__, TypeError)
        assert made.releases == 1

    def test_a_bare_capsule_cannot_go_elsewhere_and_is_released(self):
        made = Managed(device=(2, 0))
        with pytest.raises(BufferError, match=r"expected cpu, found .*, and the producer refused"):
            dlbridge.from_dlpack(made.capsule(), device="cpu")
        assert made.releases == 1

    def test_memory_of_another_device_is_imported_unless_cpu_is_requested(self):
        for device in (None, "cuda:3"):
            made = Managed(device=(2, 3), flags=READ_ONLY)
            tensor = dlbridge.from_dlpack(producer_of(made), device=device, copy=False)
            assert (tensor.device, tensor.readonly) == ("cuda:3", True)

    @pytest.mark.parametrize("failure", [KeyboardInterrupt(), SystemExit(3)])
    def test_an_interrupt_is_no_refusal(self, failure):
        with pytest.raises(type(failure)):
            dlbridge.from_dlpack(Roaming(Managed(device=(2, 0)), failure), device="cpu")

    def test_a_copy_from_elsewhere_is_refused_where_none_was_allowed(self):
        there = Managed(flags=IS_COPIED)
        with pytest.raises(
            BufferError, match="copy: expected the producer's own memory, found a copy"
        ):
            dlbridge.from_dlpack(Roaming(Managed(device=(2, 0)), there), device="cpu", copy=False)
        assert there.releases == 1

    def test_pinned_host_memory_is_read_and_copied(self):
        made = Managed(device=(3, 0))
        tensor = dlbridge.from_dlpack(producer_of(made), copy=True)
        assert tensor.data_ptr != made.base
        assert made.releases == 1
