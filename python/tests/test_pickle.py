"""Pickles of `dlbridge.Tensor`: protocols, buffers out of band, other processes, hostile states."""

from __future__ import annotations

import copy
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import dlbridge
from dlbridge._native import _unpickle
from hostile import Managed, producer_of
from support import arange
from test_create import NUMPY, PACKED, WITHOUT_NUMPY

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
READ_ONLY, PADDED = 1, 4


def bits(tensor):
    """The bytes of a contiguous tensor."""
    import ctypes

    return ctypes.string_at(tensor.data_ptr, tensor.nbytes)


def described(tensor):
    return tensor.dtype, tensor.shape, tensor.readonly, bits(tensor)


def through(tensor, protocol=5):
    return pickle.loads(pickle.dumps(tensor, protocol))


def out_of_band(tensor):
    """A pickle without the bytes, and the buffers that it refers to."""
    buffers = []
    return pickle.dumps(tensor, 5, buffer_callback=buffers.append), buffers


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", [*NUMPY, *WITHOUT_NUMPY, *PACKED])
def test_every_dtype_keeps_its_bits(dtype, protocol):
    size = 12 * WITHOUT_NUMPY.get(dtype, 0) or 12 * PACKED.get(dtype, 0) // 8
    size = size or 12 * np.dtype(dtype).itemsize
    data = bytes(number % 251 for number in range(size))
    tensor = dlbridge.from_bytes(data, dtype=dtype, shape=(4, 3))
    assert described(through(tensor, protocol)) == described(tensor) == (dtype, (4, 3), False, data)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.T,
        lambda x: x[::-1, ::2],
        lambda x: x[1:, None, 2],
        lambda x: x[0, 0],
        lambda x: x[:0],
        lambda x: np.broadcast_to(x[:1], (5, 4)),
    ],
)
def test_every_layout_keeps_its_values(layout, protocol):
    array = layout(np.arange(12.0).reshape(3, 4))
    tensor = through(dlbridge.from_dlpack(array), protocol)
    np.testing.assert_array_equal(tensor.numpy(), array)
    assert tensor.contiguous


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_read_only_memory_stays_read_only(protocol):
    array = np.arange(4)
    array.flags.writeable = False
    for x in (array, array[::2]):
        tensor = through(dlbridge.from_dlpack(x), protocol)
        assert tensor.readonly
        assert tensor.tolist() == x.tolist()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_loaded_tensor_is_writable_and_its_own(protocol):
    array = np.arange(4)
    tensor = through(dlbridge.from_dlpack(array), protocol)
    np.from_dlpack(tensor)[:] = 9
    assert (tensor.tolist(), array.tolist()) == ([9] * 4, [0, 1, 2, 3])


def test_padded_elements_stay_padded():
    made = Managed(dtype=(0, 4, 1), shape=[6], flags=PADDED)
    tensor = dlbridge.from_dlpack(producer_of(made))
    again = through(tensor)
    assert (again.dtype, again.nbytes, bits(again)) == ("int4", 6, bits(tensor))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int4"])
def test_out_of_band_nothing_is_copied(dtype):
    tensor = dlbridge.zeros((64, 64), dtype=dtype)
    pickled, (buffer,) = out_of_band(tensor)
    assert len(pickled) < 200
    assert memoryview(buffer).nbytes == tensor.nbytes
    again = pickle.loads(pickled, buffers=[buffer])
    assert (again.data_ptr, again.dtype, again.shape) == (tensor.data_ptr, dtype, (64, 64))


def test_bytes_that_a_transport_keeps_read_only_are_not_written():
    pickled, (buffer,) = out_of_band(arange(4))
    received = bytes(buffer)
    tensor = pickle.loads(pickled, buffers=[received])
    assert tensor.readonly
    assert tensor.data_ptr == np.frombuffer(received, "uint8").ctypes.data
    assert not pickle.loads(pickled, buffers=[bytearray(buffer)]).readonly


def test_a_pickled_buffer_keeps_the_memory():
    _, (buffer,) = out_of_band(arange(1000))
    # The tensor itself is gone.
    assert np.frombuffer(buffer, "int64").sum() == 999 * 1000 // 2


def test_a_tensor_of_an_extension_pickles_by_the_package():
    example = pytest.importorskip("dlbridge_example", reason="the extension is not installed")
    planes = example.to_planes(example.Image(2, 3))
    assert not isinstance(planes, dlbridge.Tensor)
    again = pickle.loads(pickle.dumps(planes, 5))
    assert type(again) is dlbridge.Tensor
    assert again.tolist() == planes.numpy().tolist()


def test_copies_agree_with_pickles():
    array = np.arange(4)
    array.flags.writeable = False
    tensor = dlbridge.from_dlpack(array)
    assert copy.copy(tensor).readonly
    assert copy.copy(tensor).data_ptr == tensor.data_ptr
    assert copy.deepcopy(tensor).tolist() == through(tensor).tolist()


def test_device_memory_tells_the_way_out():
    tensor = dlbridge.from_dlpack(producer_of(Managed(device=(2, 0))))
    for protocol in PROTOCOLS:
        with pytest.raises(BufferError, match=r'found memory on cuda:0.*device="cpu"'):
            pickle.dumps(tensor, protocol)


def test_a_container_of_tensors_and_shared_references():
    tensor = arange(3)
    first, second = through([tensor, tensor])
    assert first is second


HOSTILE = {
    "too few bytes": (b"1234567", "int64", (1,), 0, ValueError, "expected 8 bytes"),
    "too many bytes": (b"123456789", "int64", (1,), 0, ValueError, "expected 8 bytes"),
    "no bytes for elements": (b"", "int8", (1,), 0, ValueError, "expected 1 bytes"),
    "bytes for no elements": (b"1", "int8", (0,), 0, ValueError, "expected 0 bytes"),
    "a negative extent": (b"12", "int8", (-2,), 0, ValueError, "-2"),
    "negative extents": (b"1234", "int8", (-2, -2), 0, ValueError, "-2"),
    "a huge extent": (b"12", "int64", (1 << 61,), 0, ValueError, "overflow|size|expected"),
    "extents that wrap around": (b"", "int8", (1 << 32, 1 << 32), 0, ValueError, "count"),
    "a product that wraps to 4": (b"1234", "int8", (4, (1 << 62) + 1), 0, ValueError, "count"),
    "huge extents of no elements": (b"", "int8", (0, 1 << 62, 4), 0, ValueError, "count"),
    "an extent of more than 64 bits": (b"1", "int8", (1 << 64,), 0, OverflowError, None),
    "too many axes": (b"1", "int8", (1,) * 1000, 0, ValueError, "found 1000"),
    "an extent that is no number": (b"1", "int8", ("1",), 0, TypeError, None),
    "a shape that is none": (b"1", "int8", None, 0, TypeError, None),
    "no dtype": (b"1", "nothing", (1,), 0, ValueError, "nothing"),
    "a dtype without bits": (b"", "int0", (1,), 0, ValueError, None),
    "a dtype that is no name": (b"1", 7, (1,), 0, TypeError, None),
    "unknown flags": (b"1", "int8", (1,), 1 << 40, ValueError, "flags"),
    "a copy for the consumer": (b"1", "int8", (1,), 2, ValueError, "flags"),
    "negative flags": (b"1", "int8", (1,), -1, OverflowError, None),
    "packed elements as padded": (b"123", "int4", (6,), PADDED, ValueError, "expected 6 bytes"),
    "data that is no buffer": (None, "int8", (1,), 0, TypeError, "expected an array"),
    "text": ("1", "int8", (1,), 0, TypeError, "expected an array"),
    "bytes with gaps": (memoryview(b"1234")[::2], "int8", (2,), 0, ValueError, "contiguous"),
}


@pytest.mark.parametrize("case", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_state_is_an_error(case):
    *state, error, message = case
    with pytest.raises(error, match=message):
        _unpickle(*state)


def test_device_memory_in_a_state_is_an_error():
    cuda = producer_of(Managed(device=(2, 0)))
    with pytest.raises(ValueError, match=r"found .* on cuda:0"):
        _unpickle(cuda, "float32", (2, 3), 0)


def test_a_cut_pickle_is_an_error():
    pickled = pickle.dumps(arange(4), 5)
    for end in range(len(pickled)):
        with pytest.raises((pickle.UnpicklingError, EOFError, ValueError, AttributeError)):
            pickle.loads(pickled[:end])


# Other processes.


def doubled(tensor):
    return dlbridge.from_dlpack(np.from_dlpack(tensor) * 2)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_an_executor_sends_tensors_both_ways(method):
    if sys.platform == "win32" and method == "forkserver":
        pytest.skip("Windows has no forkserver")
    with ProcessPoolExecutor(1, mp_context=get_context(method)) as executor:
        tensor = executor.submit(doubled, arange(1000, dtype="float32")).result()
    assert tensor.tolist() == list(range(0, 2000, 2))


def test_joblib_sends_tensors_both_ways():
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    tensors = [arange(size) for size in (3, 4)]
    results = joblib.Parallel(n_jobs=2)(joblib.delayed(doubled)(tensor) for tensor in tensors)
    assert [tensor.tolist() for tensor in results] == [[0, 2, 4], [0, 2, 4, 6]]


def test_dask_serializes_a_tensor_without_a_copy():
    protocol = pytest.importorskip("distributed.protocol", reason="distributed is not installed")
    tensor = dlbridge.zeros(1 << 16, dtype="bfloat16")
    header, frames = protocol.serialize(tensor)
    assert header["serializer"] == "pickle"
    (large,) = [frame for frame in frames if memoryview(frame).nbytes == tensor.nbytes]
    assert np.frombuffer(large, "uint8").ctypes.data == tensor.data_ptr
    again = protocol.deserialize(header, [bytearray(frame) for frame in frames])
    assert described(again) == described(tensor)


@pytest.mark.slow
def test_dask_sends_tensors_between_workers():
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    )
    with cluster, cluster.get_client() as client:
        first, second = client.scheduler_info()["workers"]
        made = client.submit(arange, 100_000, workers=[first])
        sent = client.submit(doubled, made, workers=[second])
        assert sent.result().tolist() == list(range(0, 200_000, 2))
        assert client.who_has(sent)[sent.key] == (second,)


@pytest.mark.slow
def test_ray_passes_a_tensor_through_its_object_store():
    ray = pytest.importorskip("ray", reason="ray is not installed")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)

    @ray.remote
    def ends(tensor):
        values = np.from_dlpack(tensor)
        return tensor.readonly, int(values[0]), int(values[-1])

    try:
        stored = ray.put(arange(100_000))
        first, second = ray.get(stored), ray.get(stored)
        # Both are over the memory of the store.
        assert first.data_ptr == second.data_ptr
        assert first.readonly
        assert first.tolist()[-1] == 99_999
        assert ray.get(ends.remote(stored)) == (True, 0, 99_999)
    finally:
        ray.shutdown()
