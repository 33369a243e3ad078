"""Tensors that Rust makes: their values, their types, and what bad arguments are told."""

from __future__ import annotations

import array
import ctypes
import re
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import dlbridge

INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
NUMPY = [*INTEGERS, "float16", "float32", "float64", "complex64", "complex128", "bool"]
WITHOUT_NUMPY = {
    "bfloat16": 2,
    "complex32": 4,
    "bcomplex32": 4,
    "int128": 16,
    "uint128": 16,
    "float8_e3m4": 1,
    "float8_e4m3": 1,
    "float8_e4m3b11fnuz": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "float32x4": 16,
    "int8x16": 16,
    "float4_e2m1fnx2": 1,
    "opaque64": 8,
    "code200:16": 2,
}
PACKED = {"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6, "int4": 4, "uint2": 2}
# More than any address space has, and less than would overflow a size.
TOO_MUCH = [
    "dlbridge.zeros(2**62, dtype='int8')",
    "dlbridge.from_dlpack(np.broadcast_to(np.int8(1), 2**62), copy=True)",
    "dlbridge.from_dlpack(np.broadcast_to(np.int8(1), 2**62)).__dlpack__(copy=True)",
]


def values(tensor):
    return np.from_dlpack(tensor).tolist()


def raw_bytes(tensor):
    return ctypes.string_at(tensor.data_ptr, tensor.nbytes)


class TestZeros:
    @pytest.mark.parametrize("dtype", NUMPY)
    def test_numpy_reads_every_type_that_it_has(self, dtype):
        array = np.from_dlpack(dlbridge.zeros((2, 3), dtype=dtype))
        assert (array.dtype, array.shape) == (np.dtype(dtype), (2, 3))
        assert not array.any()

    @pytest.mark.parametrize(("dtype", "itemsize"), WITHOUT_NUMPY.items())
    def test_other_types_are_made_all_the_same(self, dtype, itemsize):
        tensor = dlbridge.zeros((2, 3), dtype=dtype)
        assert (tensor.dtype, tensor.itemsize, tensor.nbytes) == (dtype, itemsize, 6 * itemsize)
        assert raw_bytes(tensor) == bytes(6 * itemsize)

    @pytest.mark.parametrize(("dtype", "bits"), PACKED.items())
    def test_elements_narrower_than_a_byte_are_packed(self, dtype, bits):
        tensor = dlbridge.zeros(5, dtype=dtype)
        assert (tensor.dtype, tensor.itemsize, tensor.size) == (dtype, None, 5)
        assert tensor.nbytes == (5 * bits + 7) // 8

    @pytest.mark.parametrize(
        ("shape", "expected"),
        [(3, (3,)), ((), ()), ([], ()), ([2, 3], (2, 3)), ((0, 4), (0, 4)), (range(3), (0, 1, 2))],
    )
    def test_a_shape_is_a_number_or_a_sequence(self, shape, expected):
        tensor = dlbridge.zeros(shape)
        assert (tensor.shape, tensor.dtype) == (expected, "float64")
        assert np.from_dlpack(tensor).shape == expected

    def test_memory_is_aligned_contiguous_and_writable(self):
        for size in (1, 7, 100, 10_000):
            tensor = dlbridge.zeros(size, dtype="int8")
            assert tensor.data_ptr % 64 == 0
            assert tensor.contiguous
            assert not tensor.readonly

    @pytest.mark.parametrize(
        ("shape", "message"),
        [
            (-1, "axis 0: expected extent 0 or more, found -1"),
            ((2, -3), "axis 1: expected extent 0 or more, found -3"),
            ((2**40, 2**40), "that fit the address space"),
            ((1,) * 65, "ndim: expected 0 to 64, found 65"),
        ],
    )
    def test_an_impossible_shape_is_a_value_error(self, shape, message):
        with pytest.raises(ValueError, match=message):
            dlbridge.zeros(shape)

    @pytest.mark.parametrize("call", TOO_MUCH)
    def test_more_memory_than_there_is_is_a_memory_error(self, call):
        # In a process of its own, since it may end it.
        script = (
            "import dlbridge, numpy as np\n"
            f"try:\n    {call}\n"
            "except MemoryError:\n    print('refused')"
        )
        command = [sys.executable, "-c", script]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout) == (0, "refused\n")

    @pytest.mark.parametrize("shape", ["3", 1.5, None, (1.5,), {"a": 1}, 2**70])
    def test_what_is_no_shape_is_refused(self, shape):
        with pytest.raises((TypeError, OverflowError)):
            dlbridge.zeros(shape)

    @pytest.mark.parametrize(
        "dtype", ["float7x", "f5", "", "Float32", "int8x", "bool8x", "float+32", ">f4", "|f4"]
    )
    def test_an_unknown_type_name_is_a_value_error_that_lists_known_ones(self, dtype):
        message = re.escape(f'dtype: expected a known name, found "{dtype}"; known are bool, int8,')
        with pytest.raises(ValueError, match=message):
            dlbridge.zeros(3, dtype=dtype)

    @pytest.mark.parametrize("dtype", [3, None, list, object(), 2.5, np.dtype("M8[s]"), str])
    def test_what_is_no_type_is_a_type_error(self, dtype):
        with pytest.raises(TypeError, match="dtype: expected a name or a type, such as"):
            dlbridge.zeros(3, dtype=dtype)

    @pytest.mark.parametrize(
        "dtype", [*"?bhiqBHIQefdFD", "f4", "<f8", "=i2", "|u1", "float", "int", "complex", "half"]
    )
    def test_short_names_are_those_of_numpy(self, dtype):
        assert dlbridge.zeros(3, dtype=dtype).dtype == np.dtype(dtype).name

    @pytest.mark.parametrize("dtype", [bool, int, float, complex, np.float32, np.int8, np.bool_])
    def test_types_are_those_of_numpy(self, dtype):
        for form in (dtype, np.dtype(dtype)):
            assert dlbridge.zeros(3, dtype=form).dtype == np.dtype(dtype).name

    def test_another_byte_order_is_a_value_error(self):
        with pytest.raises(ValueError, match="dtype: expected native byte order, found >f4"):
            dlbridge.zeros(3, dtype=np.dtype(">f4"))

    @pytest.mark.parametrize("module", ["torch", "jax.numpy", "ml_dtypes"])
    def test_types_of_other_frameworks_are_taken(self, module):
        module = pytest.importorskip(module, reason=f"{module} is not installed")
        for name in ("float32", "bfloat16", "float8_e5m2", "complex64", "uint8"):
            if hasattr(module, name):
                assert dlbridge.zeros(3, dtype=getattr(module, name)).dtype == name

    @pytest.mark.parametrize("dtype", ["int0", "float32x0"])
    def test_a_type_without_width_is_a_value_error(self, dtype):
        with pytest.raises(ValueError, match="dtype"):
            dlbridge.zeros(3, dtype=dtype)


class TestFromBytes:
    @pytest.mark.parametrize("dtype", [name for name in NUMPY if name != "bool"])
    def test_numpy_reads_the_same_values(self, dtype):
        data = np.arange(12).astype(dtype)
        tensor = dlbridge.from_bytes(data.tobytes(), dtype=dtype, shape=(3, 4))
        assert values(tensor) == data.reshape(3, 4).tolist()

    @pytest.mark.parametrize(
        "data",
        [b"\1\2\3", bytearray(b"\1\2\3"), memoryview(b"\1\2\3"), array.array("b", [1, 2, 3])],
    )
    def test_anything_with_a_buffer_is_taken(self, data):
        tensor = dlbridge.from_bytes(data)
        assert (tensor.dtype, values(tensor)) == ("uint8", [1, 2, 3])

    def test_a_buffer_with_gaps_keeps_its_strides(self):
        assert values(dlbridge.from_bytes(memoryview(b"abcdef")[::-2])) == list(b"fdb")

    @pytest.mark.parametrize("make", [bytearray, lambda size: array.array("d", bytes(size))])
    def test_a_buffer_is_copied_once(self, make):
        data = make(1 << 20)
        tracemalloc.start()
        try:
            tensor = dlbridge.from_bytes(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert tensor.shape == (1 << 20,)
        assert peak < 1 << 19, "Python allocates no copy"

    def test_a_buffer_is_checked_as_bytes_are(self):
        assert values(dlbridge.from_bytes(bytearray(b"\1\0"), dtype="bool")) == [True, False]
        for data in bytes(8), bytearray(8):
            for shape in 7, 1 << 40, 1 << 62, (1 << 40, 1 << 40):
                with pytest.raises(ValueError, match=r"size|shape"):
                    dlbridge.from_bytes(data, shape=shape)

    def test_the_bytes_are_copied(self):
        data = bytearray(8)
        tensor = dlbridge.from_bytes(data)
        data[0] = 1
        assert values(tensor) == [0] * 8
        assert not tensor.readonly

    def test_without_a_shape_there_is_one_axis(self):
        assert dlbridge.from_bytes(bytes(12), dtype="float32").shape == (3,)
        assert dlbridge.from_bytes(b"").shape == (0,)
        assert dlbridge.from_bytes(bytes(8), dtype="bfloat16", shape=4).shape == (4,)

    @pytest.mark.parametrize("shape", [(-1, 4), (3, -1), -1, (2, -1, 3), [1, 12, -1]])
    def test_one_extent_is_found_from_the_others(self, shape):
        data = np.arange(12, dtype="float32")
        tensor = dlbridge.from_bytes(data.tobytes(), dtype="float32", shape=shape)
        assert values(tensor) == data.reshape(shape).tolist()

    @pytest.mark.parametrize("shape", [(-1, 5), (-1, -1), (0, -1), (-1, -2)])
    def test_an_extent_that_is_no_number_is_a_value_error(self, shape):
        with pytest.raises(ValueError, match=r"expected|wanted|found"):
            dlbridge.from_bytes(bytes(12), shape=shape)

    def test_float4_needs_a_shape_and_is_packed(self):
        with pytest.raises(ValueError, match="shape: expected `shape=`, found none: float4_e2m1fn"):
            dlbridge.from_bytes(b"\x21\x43", dtype="float4_e2m1fn")
        tensor = dlbridge.from_bytes(b"\x21\x43", dtype="float4_e2m1fn", shape=4)
        assert (tensor.nbytes, raw_bytes(tensor)) == (2, b"\x21\x43")

    @pytest.mark.parametrize(
        ("size", "keywords"),
        [
            (5, {"dtype": "float32"}),
            (5, {"shape": 4}),
            (3, {"shape": 4}),
            (4, {"dtype": "int16", "shape": (2, 2)}),
            (1, {"shape": 0}),
        ],
    )
    def test_another_number_of_bytes_is_a_value_error(self, size, keywords):
        with pytest.raises(ValueError, match=f"(size|data): expected .* bytes.*, found {size}$"):
            dlbridge.from_bytes(bytes(size), **keywords)

    @pytest.mark.parametrize("data", ["text", 3, None, [1, 2]])
    def test_an_object_without_a_buffer_is_a_type_error(self, data):
        with pytest.raises(TypeError, match="data: expected bytes or an object with a buffer"):
            dlbridge.from_bytes(data)

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="Python has no __buffer__")
    def test_a_type_error_of_the_objects_own_buffer_is_raised(self):
        class Refuses:
            def __buffer__(self, flags):
                raise TypeError("its own reason")

        with pytest.raises(TypeError, match="its own reason"):
            dlbridge.from_bytes(Refuses())


class TestMlDtypes:
    @pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e3m4"])
    def test_bytes_of_its_types_are_read_back_by_it(self, dtype):
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        kind = getattr(ml_dtypes, dtype)
        data = np.array([0, 0.5, 1, -2], dtype=kind)
        tensor = dlbridge.from_bytes(data.tobytes(), dtype=dtype)
        back = np.frombuffer(raw_bytes(tensor), dtype=kind)
        assert back.astype("float32").tolist() == [0, 0.5, 1, -2]
