"""Arrays of JAX on the host are imported by their buffer, all others by `__dlpack__`."""

from __future__ import annotations

import sys
from unittest import mock

import numpy as np
import pytest

import dlbridge

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")


@pytest.fixture
def methods():
    """The names of the functions in Python that run."""
    names = []

    def note(frame, event, _):
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    yield names
    sys.setprofile(None)


def host(array):
    return jax.device_put(array, jax.devices("cpu")[0])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "float16", "float32"])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (0, 3), (2, 3), (2, 3, 4)])
def test_the_pages_of_an_array_are_shared_without_a_call(dtype, shape, methods):
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    array = host(numbers)
    dlbridge.from_dlpack(array)
    methods.clear()
    tensor = dlbridge.from_dlpack(array)
    assert "__dlpack__" not in methods
    assert (tensor.dtype, tensor.shape, tensor.device) == (dtype, shape, "cpu")
    assert tensor.readonly and tensor.tolist() == numbers.tolist()
    if tensor.size:
        assert tensor.data_ptr == array.unsafe_buffer_pointer()


def test_elements_that_a_buffer_cannot_describe_go_by_the_method(methods):
    array = host(np.ones(3)).astype("bfloat16")
    methods.clear()
    tensor = dlbridge.from_dlpack(array)
    assert "__dlpack__" in methods
    assert (tensor.dtype, tensor.tolist()) == ("bfloat16", [1, 1, 1])


def test_a_deleted_array_is_refused():
    array = host(np.ones(3))
    dlbridge.from_dlpack(array)
    array.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        dlbridge.from_dlpack(array)


def test_memory_that_is_imported_outlives_a_deleted_and_a_donated_array():
    numbers = np.arange(1000, dtype="float32")
    array = host(numbers) + 0
    tensor = dlbridge.from_dlpack(array)
    array.delete()
    assert [float(sum(host(numbers))) for _ in range(3)] and tensor.numpy().tolist() == [*numbers]
    array = host(numbers) + 0
    tensor = dlbridge.from_dlpack(array)
    doubled = jax.jit(lambda x: 2 * x, donate_argnums=0)(array)
    assert (np.asarray(doubled) == 2 * numbers).all()
    assert (tensor.numpy() == numbers).all()


def test_a_computation_that_runs_is_waited_for():
    @jax.jit
    def slow(x):
        return jax.lax.fori_loop(0, 20, lambda _, y: jnp.sin(y) @ x * 1e-3 + 1, x)

    x = host(np.ones((300, 300), "float32"))
    expected = np.asarray(slow(x))
    for _ in range(3):
        assert (dlbridge.from_dlpack(slow(x)).numpy() == expected).all()


def test_a_patched_method_is_called():
    array = host(np.ones(3))
    assert dlbridge.from_dlpack(array).tolist() == [1, 1, 1]
    seven = np.array([7.0])
    with mock.patch.object(
        type(array), "__dlpack__", lambda _, **keywords: seven.__dlpack__(**keywords)
    ):
        assert dlbridge.from_dlpack(array).tolist() == [7]
    assert dlbridge.from_dlpack(array).tolist() == [1, 1, 1]


def test_an_inspected_array_says_what_dlpack_says():
    assert "__dlpack__" in str(dlbridge.inspect(host(np.ones(3))).protocol)


def test_an_array_goes_back_to_a_consumer_of_legacy_capsules():
    array = host(np.arange(3.0))
    tensor = dlbridge.from_dlpack(array)
    assert jax.dlpack.from_dlpack(tensor).tolist() == [0, 1, 2]
    assert '"dltensor"' in repr(tensor.__dlpack__())


def test_the_error_of_a_write_says_what_it_is():
    example = pytest.importorskip("dlbridge_example", reason="the example is not installed")
    array = host(np.ones(3, "float32"))
    with pytest.raises(TypeError, match="read-only, as legacy capsules and arrays of JAX are"):
        example.normalise(array)


def test_a_class_of_its_name_does_not_lose_the_flag():
    fake = type("ArrayImpl", (bytes,), {"__module__": type(host(np.ones(3))).__module__})
    tensor = dlbridge.from_dlpack(fake(b"abc"))
    assert tensor.readonly and tensor.tolist() == [*b"abc"]
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__()
