"""What a tensor says of itself, and what `inspect` says of a producer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dlbridge
from hostile import IS_COPIED, READ_ONLY, SUBBYTE_PADDED, Managed, producer_of
from support import arange


def test_a_tensor_reads_well():
    assert repr(arange(6, dtype="float32")) == (
        "dlbridge.Tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], shape=(6,), dtype=float32, device=cpu)"
    )
    assert repr(dlbridge.zeros((), dtype="bool")) == (
        "dlbridge.Tensor(False, shape=(), dtype=bool, device=cpu)"
    )
    array = np.zeros((2, 0))
    array.flags.writeable = False
    assert repr(dlbridge.from_dlpack(array)) == (
        "dlbridge.Tensor([], shape=(2, 0), dtype=float64, device=cpu, readonly)"
    )


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ((1, 0), "cpu"),
        ((1, 2), "cpu:2"),
        ((2, 0), "cuda:0"),
        ((3, 0), "cuda_host:0"),
        ((10, 1), "rocm:1"),
        ((13, 0), "cuda_managed:0"),
        ((14, 0), "oneapi:0"),
        ((99, 5), "kind99:5"),
    ],
)
def test_a_device_has_a_name(device, name):
    tensor = dlbridge.from_dlpack(producer_of(Managed(device=device)))
    assert tensor.device == name
    assert tensor.__dlpack_device__() == device
    assert f"device={name})" in repr(tensor)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype="int16").reshape(2, 3, 4),
        np.arange(24, dtype="float64").reshape(4, 6).T,
        np.arange(24, dtype="uint8").reshape(4, 6)[::-1, ::2],
        np.array(3.5, dtype="float32"),
        np.zeros((3, 1), dtype="complex128"),
    ],
    ids=["contiguous", "transposed", "backwards", "0-d", "one column"],
)
def test_attributes_are_those_of_the_array(array):
    tensor = dlbridge.from_dlpack(array)
    assert tensor.shape == array.shape
    assert tensor.strides == tuple(stride // array.itemsize for stride in array.strides)
    assert tensor.dtype == array.dtype.name
    assert tensor.device == "cpu"
    assert (tensor.ndim, tensor.size) == (array.ndim, array.size)
    assert (tensor.nbytes, tensor.itemsize) == (array.nbytes, array.itemsize)
    assert tensor.readonly is not array.flags.writeable
    assert tensor.contiguous is array.flags.c_contiguous
    assert tensor.data_ptr == array.ctypes.data
    assert np.from_dlpack(tensor).tolist() == array.tolist()


def test_attributes_of_a_tensor_without_elements_agree_with_its_shape():
    tensor = dlbridge.zeros((3, 0, 2), dtype="int32")
    assert (tensor.shape, tensor.size, tensor.nbytes) == ((3, 0, 2), 0, 0)
    assert tensor.contiguous
    assert len(tensor) == 3


def test_the_length_is_that_of_the_outermost_axis():
    assert len(dlbridge.zeros(5)) == 5
    assert len(dlbridge.zeros((0, 2))) == 0
    with pytest.raises(TypeError, match="0-d"):
        len(dlbridge.zeros(()))


def test_attributes_cannot_be_set():
    tensor = dlbridge.zeros(3)
    for name in ("shape", "dtype", "readonly", "data_ptr", "new"):
        with pytest.raises(AttributeError):
            setattr(tensor, name, 1)
    assert not hasattr(tensor, "__dict__")


def test_a_tensor_cannot_be_made_or_derived_from():
    with pytest.raises(TypeError):
        dlbridge.Tensor()
    with pytest.raises(TypeError):
        type("Derived", (dlbridge.Tensor,), {})
    assert dlbridge.Tensor.__module__ == "dlbridge"


def test_a_description_holds_the_descriptor_as_it_was_given():
    made = Managed(shape=[2, 3], strides=None, byte_offset=8, version=(1, 1), flags=READ_ONLY)
    assert dataclasses.asdict(dlbridge.inspect(producer_of(made))) == {
        "protocol": "__dlpack__, versioned",
        "version": (1, 1),
        "flags": "READ_ONLY",
        "readonly": True,
        "copied": False,
        "dtype": "float32",
        "device": "cpu",
        "shape": (2, 3),
        "strides": (3, 1),
        "explicit_strides": False,
        "byte_offset": 8,
        "data_ptr": made.base + 8,
        "nbytes": 24,
    }
    assert made.releases == 1


def test_a_description_prints_a_row_for_each_field():
    made = Managed(legacy=True)
    description = dlbridge.inspect(producer_of(made))
    rows = dict(row.split(maxsplit=1) for row in str(description).splitlines())
    assert list(rows) == [field.name for field in dataclasses.fields(dlbridge.Description)]
    assert rows["version"] == "legacy"
    assert rows["data_ptr"] == hex(made.base)
    assert rows["protocol"] == "__dlpack__, legacy"
    assert "version           not DLPack\n" in str(dlbridge.inspect(b"abc"))
    assert "version           not DLPack\n" in str(dlbridge.inspect(np.zeros(3)))
    versioned = str(dlbridge.inspect(producer_of(Managed())))
    assert "version           1.3\n" in versioned


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (0, "none"),
        (READ_ONLY, "READ_ONLY"),
        (IS_COPIED, "IS_COPIED"),
        (READ_ONLY | IS_COPIED, "READ_ONLY | IS_COPIED"),
        (SUBBYTE_PADDED, "SUBBYTE_PADDED"),
        (READ_ONLY | 1 << 20, "READ_ONLY | 0x100000"),
        (1 << 63, "0x8000000000000000"),
    ],
)
def test_flags_are_named(flags, text):
    description = dlbridge.inspect(producer_of(Managed(flags=flags)))
    assert description.flags == text
    assert description.readonly is bool(flags & READ_ONLY)
    assert description.copied is bool(flags & IS_COPIED)


def test_a_description_cannot_be_changed_and_can_be_compared():
    array = np.zeros(3)
    description = dlbridge.inspect(array)
    with pytest.raises(dataclasses.FrozenInstanceError):
        description.nbytes = 1
    assert description == dlbridge.inspect(array)
    assert description != dlbridge.inspect(np.ones(3))


def test_a_tensor_of_ours_is_described_like_any_other():
    tensor = dlbridge.zeros((2, 3), dtype="bfloat16")
    description = dlbridge.inspect(tensor)
    assert description.version == dlbridge.DLPACK_VERSION
    assert (description.dtype, description.strides) == ("bfloat16", (3, 1))
    assert description.explicit_strides
    assert description.data_ptr == tensor.data_ptr


def test_an_object_that_cannot_be_imported_cannot_be_inspected():
    with pytest.raises(
        TypeError, match=r"expected an array .*, found int; convert it with numpy.asarray"
    ):
        dlbridge.inspect(3)
    with pytest.raises(BufferError, match="ndim"):
        dlbridge.inspect(producer_of(Managed(ndim=-1)))


class TestFrameworks:
    def test_jax_arrays_are_readonly_whether_jax_can_say_so_or_not(self):
        jax = pytest.importorskip("jax.numpy", reason="jax is not installed")
        description = dlbridge.inspect(jax.arange(3, dtype="int32"))
        # Up to 0.10 at least, jax answers with the old descriptor, which does not say writable.
        assert description.readonly
        assert (description.shape, description.dtype) == ((3,), "int32")

    def test_pyarrow_arrays_are_readonly(self):
        # Releases before 26 give the old protocol, which cannot say so.
        pyarrow = pytest.importorskip("pyarrow", "26", reason="pyarrow 26 is not installed")
        description = dlbridge.inspect(pyarrow.array([1.5, 2.5]))
        assert (description.readonly, description.shape) == (True, (2,))

    def test_the_strict_namespace_is_taken(self):
        strict = pytest.importorskip("array_api_strict", reason="it is not installed")
        description = dlbridge.inspect(strict.ones((2, 2)))
        assert (description.shape, description.dtype) == ((2, 2), "float64")

    @pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e8m0fnu", "bfloat16"])
    def test_narrow_floats_of_jax_are_named(self, dtype):
        jax = pytest.importorskip("jax.numpy", reason="jax is not installed")
        assert dlbridge.inspect(jax.ones(3, dtype=dtype)).dtype == dtype

    def test_float4_of_torch_has_two_lanes(self):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        tensor = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
        description = dlbridge.inspect(tensor)
        assert (description.dtype, description.nbytes) == ("float4_e2m1fnx2", 4)
