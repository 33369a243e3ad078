"""Tensors that Rust makes: their values, their types, and what bad arguments are told."""

from __future__ import annotations

import array
import ctypes
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

import dlbridge
from dlbridge import _native

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
    "dlbridge.arange(2**59)",
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


class TestArange:
    @pytest.mark.parametrize(
        "arguments",
        [(5,), (0,), (-3,), (2, 7), (7, 2), (7, 2, -2), (0, 10, 3), (-5, 5, 4), (1, 2, 0.25)],
    )
    def test_it_counts_as_numpy_does(self, arguments):
        ours, theirs = np.from_dlpack(dlbridge.arange(*arguments)), np.arange(*arguments)
        assert (ours.dtype, ours.tolist()) == (theirs.dtype, theirs.tolist())

    @pytest.mark.parametrize("dtype", [name for name in NUMPY if name != "bool"])
    def test_it_counts_in_every_type_that_numpy_has(self, dtype):
        tensor = dlbridge.arange(7, dtype=dtype)
        assert (tensor.dtype, values(tensor)) == (dtype, np.arange(7).astype(dtype).tolist())

    def test_bfloat16_holds_the_upper_half_of_float32(self):
        tensor = dlbridge.arange(-4, 4, dtype="bfloat16")
        upper = np.frombuffer(raw_bytes(tensor), dtype="uint16").astype("uint32") << 16
        assert upper.view("float32").tolist() == list(range(-4, 4))

    @pytest.mark.parametrize("start", [2**53, 2**62 + 1, -(2**63), 2**63 - 4])
    def test_a_wide_integer_keeps_its_digits(self, start):
        assert values(dlbridge.arange(start, start + 3)) == [start, start + 1, start + 2]

    def test_fractions_are_cut_off_for_integers(self):
        assert values(dlbridge.arange(0.5, 3, dtype="int8")) == [0, 1, 2]

    @pytest.mark.parametrize(
        ("arguments", "dtype", "found"),
        [((-3, 3), "uint8", -3), ((300,), "uint8", 299), ((3, -130, -1), "int8", -129)],
    )
    def test_a_number_that_the_type_lacks_is_an_overflow_error(self, arguments, dtype, found):
        with pytest.raises(OverflowError, match=f"expected numbers within {dtype}, found {found}$"):
            dlbridge.arange(*arguments, dtype=dtype)
        assert dlbridge.arange(250, 256, dtype="uint8").tolist() == list(range(250, 256))

    def test_a_step_of_0_is_a_value_error(self):
        for step in (0, 0.0, -0.0):
            with pytest.raises(ValueError, match="step: expected a number other than 0"):
                dlbridge.arange(0, 3, step)

    @pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float32x4", "int4", "complex32"])
    def test_a_type_that_rust_cannot_compute_with_is_a_type_error(self, dtype):
        with pytest.raises(TypeError, match=f"dtype: expected bool, .*, found {dtype}"):
            dlbridge.arange(3, dtype=dtype)

    @pytest.mark.parametrize("start", ["3", None, 1j, [3]])
    def test_what_is_no_number_is_a_type_error(self, start):
        with pytest.raises(TypeError):
            dlbridge.arange(start)

    def test_a_range_wider_than_128_bits_is_counted(self):
        assert dlbridge.arange(2**126, 2**126, -1).shape == (0,)
        assert dlbridge.arange(-(2**126), 2**126, -1).shape == (0,)
        step = 2**126
        wide = dlbridge.arange(-(2**127), 2**127 - 1, step, dtype="float64")
        assert np.from_dlpack(wide).tolist() == [-2.0 * step, -1.0 * step, 0.0, 1.0 * step]
        for step in (1, -1):
            with pytest.raises((ValueError, MemoryError)):
                dlbridge.arange(-step * 2**126, step * 2**126, step)

    @pytest.mark.parametrize("stop", [float("inf"), 1e300])
    def test_a_range_without_end_is_refused(self, stop):
        with pytest.raises((ValueError, MemoryError, OverflowError)):
            dlbridge.arange(0, stop)


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
        with pytest.raises(TypeError):
            dlbridge.from_bytes(data)


class TestFill:
    @pytest.mark.parametrize("dtype", NUMPY)
    def test_every_element_is_written(self, dtype):
        tensor = dlbridge.zeros((2, 3), dtype=dtype)
        dlbridge.fill(tensor, 1)
        assert values(tensor) == np.ones((2, 3), dtype).tolist()

    def test_memory_of_numpy_is_written_where_the_tensor_lies_alone(self):
        whole = np.zeros((4, 6), dtype="float32")
        dlbridge.fill(dlbridge.from_dlpack(whole[::-2, 1::3]), 2.5)
        expected = np.zeros((4, 6), dtype="float32")
        expected[::-2, 1::3] = 2.5
        assert whole.tolist() == expected.tolist()

    def test_readonly_memory_is_not_written(self):
        array = np.zeros(3)
        array.flags.writeable = False
        with pytest.raises(BufferError, match="read-only"):
            dlbridge.fill(dlbridge.from_dlpack(array), 1)
        assert array.tolist() == [0, 0, 0]

    def test_memory_that_a_function_in_rust_uses_is_not_written(self):
        whole = dlbridge.zeros((2, 3))
        kept, done = threading.Event(), threading.Event()

        def use():
            _native._keep(whole[0])
            kept.set()
            done.wait()

        thread = threading.Thread(target=use)
        thread.start()
        kept.wait()
        try:
            with pytest.raises(TypeError, match=r"of which another argument, .* reads a part"):
                dlbridge.fill(whole, 1)
            dlbridge.fill(whole[1], 1)
        finally:
            done.set()
            thread.join()
        assert values(whole) == [[0, 0, 0], [1, 1, 1]]

    def test_rank_0_and_no_elements_are_fine(self):
        scalar = dlbridge.zeros((), dtype="int32")
        dlbridge.fill(scalar, 7)
        assert values(scalar) == 7
        dlbridge.fill(dlbridge.zeros((0, 3)), 7)

    def test_a_type_that_rust_cannot_compute_with_is_a_type_error(self):
        with pytest.raises(TypeError, match="float8_e5m2"):
            dlbridge.fill(dlbridge.zeros(3, dtype="float8_e5m2"), 1)

    @pytest.mark.parametrize("arguments", [(np.zeros(3), 1), (None, 1), ()])
    def test_only_our_tensors_are_filled(self, arguments):
        with pytest.raises(TypeError):
            dlbridge.fill(*arguments)

    @pytest.mark.parametrize("value", ["1", None, 1j])
    def test_what_is_no_number_is_a_type_error(self, value):
        with pytest.raises(TypeError):
            dlbridge.fill(dlbridge.zeros(3), value)

    @pytest.mark.parametrize("dtype", [name for name in NUMPY if "int" in name])
    def test_a_number_that_the_type_lacks_is_an_overflow_error(self, dtype):
        tensor, limits = dlbridge.zeros(1, dtype=dtype), np.iinfo(dtype)
        least, most = int(limits.min), int(limits.max)
        for value in (least, most, least + 0.5, 1.9, float(least)):
            dlbridge.fill(tensor, value)
            assert values(tensor) == [int(value)]
        dlbridge.fill(tensor, 1)
        nothing = (float("nan"), float("inf"), -1e30)
        for value in (least - 1, most + 1, float(most + 1), 2**200, *nothing):
            with pytest.raises(OverflowError, match=f"value: expected a number within {dtype}"):
                dlbridge.fill(tensor, value)
        assert values(tensor) == [1]

    def test_a_whole_number_is_written_exactly(self):
        tensor = dlbridge.zeros(1, dtype="int64")
        dlbridge.fill(tensor, 2**53)
        assert values(tensor) == [2**53]


class TestMlDtypes:
    @pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e3m4"])
    def test_bytes_of_its_types_are_read_back_by_it(self, dtype):
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        kind = getattr(ml_dtypes, dtype)
        data = np.array([0, 0.5, 1, -2], dtype=kind)
        tensor = dlbridge.from_bytes(data.tobytes(), dtype=dtype)
        back = np.frombuffer(raw_bytes(tensor), dtype=kind)
        assert back.astype("float32").tolist() == [0, 0.5, 1, -2]
