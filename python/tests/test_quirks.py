"""Behaviours that one framework alone has, tested with that framework; see docs/frameworks.md."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import dlbridge
from dlpack_doctor.abi import DLManagedTensorVersioned, name_of
from hostile import VERSIONED, Managed, producer_of, read
from support import fill


def load(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


class TestPaddle:
    @pytest.fixture(autouse=True)
    def paddle(self):
        self.paddle = load("paddle")

    def test_its_device_has_no_number(self):
        tensor = self.paddle.to_tensor(np.arange(3, dtype="float32"))
        assert tensor.__dlpack_device__()[1] is None
        taken = dlbridge.from_dlpack(tensor, device="cpu")
        assert (taken.device, taken.data_ptr) == ("cpu", tensor.data_ptr())

    def test_it_goes_through_its_exchange_table(self):
        tensor = self.paddle.to_tensor(np.arange(3, dtype="float32"))
        assert dlbridge.inspect(tensor).protocol == "C exchange API"

    def test_a_tensor_that_needs_a_gradient_is_taken_as_its_memory(self):
        tensor = self.paddle.to_tensor(np.arange(3, dtype="float32"), stop_gradient=False)
        with pytest.raises(BufferError, match="gradient"):
            tensor.__dlpack__()
        assert dlbridge.from_dlpack(tensor).data_ptr == tensor.data_ptr()

    def test_an_empty_tensor_has_odd_strides(self):
        taken = dlbridge.from_dlpack(self.paddle.zeros([0, 3]))
        assert (taken.shape, taken.strides, taken.contiguous) == ((0, 3), (0, 3), True)

    def test_what_it_calls_uint16_is_bfloat16(self):
        tensor = self.paddle.to_tensor(np.arange(3, dtype="uint16"))
        assert "bfloat16" in str(tensor.dtype)
        assert dlbridge.from_dlpack(tensor).dtype == "bfloat16"

    def test_more_axes_than_it_has_are_its_own_error_and_cost_nothing(self):
        tensor = dlbridge.zeros((1,) * 10)
        with pytest.raises(RuntimeError, match="dimension"):
            self.paddle.from_dlpack(tensor)

    def test_an_offset_reaches_it_in_the_address(self):
        array = np.arange(8, dtype="float32")[3:]
        tensor = self.paddle.from_dlpack(dlbridge.from_dlpack(array))
        assert tensor.numpy().tolist() == [3.0, 4.0, 5.0, 6.0, 7.0]


class TestTensorFlow:
    @pytest.fixture(autouse=True)
    def tensorflow(self):
        self.tf = load("tensorflow")

    def test_it_answers_legacy_and_takes_nothing_else(self):
        tensor = self.tf.constant([1.0, 2.0])
        assert name_of(tensor.__dlpack__(max_version=(1, 3))) == b"dltensor"
        assert dlbridge.inspect(tensor).protocol == "__dlpack__, legacy"
        # Its arrays are immutable, and go back by the old ABI, which they came by.
        taken = dlbridge.from_dlpack(tensor)
        assert taken.readonly is True
        back = self.tf.experimental.dlpack.from_dlpack(taken.__dlpack__())
        assert back.numpy().tolist() == [1.0, 2.0]

    def test_a_variable_has_no_protocol(self):
        with pytest.raises(TypeError, match=r"expected an array .*, found "):
            dlbridge.from_dlpack(self.tf.Variable([1.0, 2.0]))

    def test_a_copy_is_made_here_since_it_makes_none(self):
        tensor = self.tf.constant([1.0, 2.0])
        with pytest.raises(RuntimeError):
            tensor.__dlpack__(copy=True)
        copy = dlbridge.from_dlpack(tensor, copy=True)
        fill(copy, 9)
        assert tensor.numpy().tolist() == [1.0, 2.0]

    def test_a_device_that_it_refuses_to_hear_of_is_not_asked_for(self):
        tensor = self.tf.constant([1.0, 2.0])
        with pytest.raises(RuntimeError):
            tensor.__dlpack__(dl_device=(1, 0))
        assert dlbridge.from_dlpack(tensor, device="cpu").shape == (2,)


class TestMlx:
    @pytest.fixture(autouse=True)
    def mlx(self):
        self.mx = load("mlx.core")

    def test_a_slice_comes_with_an_offset(self):
        whole = self.mx.arange(10)
        part = whole[6:]
        assert dlbridge.inspect(part).byte_offset == 24
        assert np.from_dlpack(dlbridge.from_dlpack(part)).tolist() == [6, 7, 8, 9]

    def test_it_answers_legacy_to_any_version(self):
        assert dlbridge.inspect(self.mx.arange(3)).protocol == "__dlpack__, legacy"

    def test_it_is_not_asked_to_call_its_memory_pinned(self):
        """Asked for another device of the host, it relabels its memory; so we ask only for devices
        that the tensor is not on, and check the answer."""
        array = self.mx.arange(3)
        assert dlbridge.from_dlpack(array, device="cpu").device == "cpu"

    @pytest.mark.parametrize("dtype", ["float64", "complex128"])
    def test_it_does_not_get_dtypes_that_it_would_narrow(self, dtype):
        example = load("dlbridge_example")
        array = self.mx.arange(3)
        assert "64" not in str(self.mx.from_dlpack(np.ones(3)).dtype)
        with pytest.raises(BufferError, match="mlx makes"):
            example.convert(array, np.ones(3, dtype=dtype))


def test_a_broadcast_view_is_taken_read_only():
    array = np.broadcast_to(np.float32(2), (3, 4))
    tensor = dlbridge.from_dlpack(array)
    assert (tensor.shape, tensor.strides, tensor.readonly) == ((3, 4), (0, 0), True)
    assert np.from_dlpack(tensor).tolist() == [[2.0] * 4] * 3


def test_one_row_with_any_strides_is_contiguous():
    array = np.arange(12, dtype="float32").reshape(1, 12)[:, :6]
    assert array.strides == (48, 4)
    tensor = dlbridge.from_dlpack(array)
    assert (tensor.shape, tensor.strides, tensor.contiguous) == ((1, 6), (12, 1), True)


TOLD = """
import sys
import ml_dtypes
import numpy as np
import dlbridge

name, code = sys.argv[1], (int(sys.argv[2]), int(sys.argv[3]))
dtype = np.dtype(getattr(ml_dtypes, name))
np.dtypes.register_dlpack_dtype(code, dtype)
array = np.arange(4).astype(dtype)
tensor = dlbridge.from_dlpack(array)
assert (tensor.dtype, tensor.data_ptr) == (name, array.ctypes.data), tensor
back = np.from_dlpack(tensor)
assert (back.dtype, back.tolist()) == (dtype, array.tolist()), back
"""


@pytest.mark.parametrize("words", ["bfloat16 4 16", "float8_e4m3fn 10 8"])
def test_a_type_that_numpy_was_told_of_goes_both_ways(words):
    """In a process of its own, since NumPy does not forget."""
    if not hasattr(np.dtypes, "register_dlpack_dtype"):
        pytest.skip("before NumPy 2.5 there is no word for it")
    done = subprocess.run(
        [sys.executable, "-c", TOLD, *words.split()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


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


def test_asarray_of_torch_reads_a_buffer_as_one_axis():
    torch = load("torch")
    example = load("dlbridge_example")
    for array in (dlbridge.zeros((2, 3), dtype="float32"), example.Image(2, 3)):
        shape = dlbridge.from_dlpack(array).shape
        assert torch.asarray(array).dim() == 1, "PyTorch reads DLPack first now: cut the rows"
        for function in (torch.as_tensor, torch.from_dlpack):
            tensor = function(array)
            assert (tuple(tensor.shape), tensor.data_ptr()) == (shape, array.data_ptr)
