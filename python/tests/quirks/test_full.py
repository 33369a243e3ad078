"""The own ways of Paddle, TensorFlow and MLX."""

from __future__ import annotations

import numpy as np
import pytest

import dlbridge
from dlpack_doctor.abi import name_of
from values import fill


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
