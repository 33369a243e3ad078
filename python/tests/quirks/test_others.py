"""The own ways of JAX, pyarrow, TVM-FFI and array-api-strict."""

from __future__ import annotations

import numpy as np
import pytest

import dlbridge
from dlpack_doctor.abi import DLManagedTensorVersioned, name_of
from hostile import VERSIONED, Managed, producer_of, read


def load(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def test_a_legacy_capsule_of_jax_says_nothing_of_access():
    """jax gives one when it is not asked for more, which `from_dlpack` never does. Its arrays are
    immutable: what such a capsule holds is not written. Older releases give nothing else, and take
    nothing else either: they are given one again."""
    array = load("jax").numpy.arange(3)
    tensor = dlbridge.from_dlpack(array.__dlpack__())
    assert tensor.readonly
    with pytest.raises(ValueError, match="read-only"):
        np.from_dlpack(tensor)[0] = 7
    assert array.tolist() == [0, 1, 2]
    assert name_of(tensor.__dlpack__()) == b"dltensor"


def test_jax_shares_our_memory_if_it_is_aligned():
    jax = load("jax")
    tensor = dlbridge.zeros(32, dtype="float32")
    assert tensor.data_ptr % 64 == 0
    assert jax.numpy.from_dlpack(tensor).unsafe_buffer_pointer() == tensor.data_ptr


def test_a_pyarrow_tensor_of_the_other_byte_order_is_pyarrows_mistake():
    """The descriptor that it gives says native; NumPy reads the same."""
    pyarrow = load("pyarrow")
    if not hasattr(pyarrow.Tensor, "__dlpack__"):
        pytest.skip("this release of pyarrow has no DLPack for tensors")
    tensor = pyarrow.Tensor.from_numpy(np.array([1], dtype=">i4"))
    ours = np.from_dlpack(dlbridge.from_dlpack(tensor))
    assert ours.tolist() == np.from_dlpack(tensor).tolist()


def test_pyarrow_truth_values_are_bytes_or_refused():
    pyarrow = load("pyarrow")
    if not hasattr(pyarrow.Tensor, "__dlpack__"):
        pytest.skip("this release of pyarrow has no DLPack for tensors")
    tensor = pyarrow.Tensor.from_numpy(np.array([True, False]))
    assert dlbridge.from_dlpack(tensor).dtype == "uint8"
    with pytest.raises((TypeError, BufferError)):
        dlbridge.from_dlpack(pyarrow.array([True, False]))


def test_a_table_of_tvm_without_callbacks_is_passed_over():
    core = load("tvm_ffi.core")
    wrapper = getattr(core, "DLTensorTestWrapper", None)
    if wrapper is None:
        pytest.skip("this release of tvm-ffi has no such class")
    tensor = load("tvm_ffi").from_dlpack(np.arange(3, dtype="float32"))
    wrapped = wrapper(tensor)
    assert dlbridge.from_dlpack(wrapped).data_ptr == tensor.data_ptr()


def test_tvm_forgets_that_memory_is_read_only_and_does_not_get_it():
    tvm = load("tvm_ffi")
    kind = load("dlbridge_example")
    array = np.arange(3, dtype="float32")
    array.flags.writeable = False
    with pytest.raises(BufferError):
        kind.convert(tvm.from_dlpack(np.zeros(1, "float32")), array)


def test_tvm_hands_an_offset_on_and_we_fold_it():
    tvm = load("tvm_ffi")
    made = Managed(byte_offset=8, legacy=True)
    tensor = dlbridge.from_dlpack(tvm.from_dlpack(producer_of(made)))
    assert tensor.data_ptr == made.base + 8


@pytest.mark.parametrize("made", [{}, {"byte_offset": 8}, {"strides": None}, {"shape": ()}])
def test_our_exports_have_strides_and_no_offset(made):
    """Paddle, ONNX Runtime, Warp and DALI ignore offsets, MindSpore follows null strides."""
    tensor = dlbridge.from_dlpack(producer_of(Managed(**made)))
    raw = read(tensor.__dlpack__(max_version=(1, 3)))
    assert isinstance(raw, DLManagedTensorVersioned)
    assert raw.tensor.byte_offset == 0
    assert bool(raw.tensor.strides) or raw.tensor.ndim == 0
    assert bool(raw.tensor.data)
    assert (raw.major, raw.minor) == (1, 3)
    assert raw.deleter, "JAX and others call it without a look"
    assert VERSIONED == b"dltensor_versioned"
