"""NumPy's `__array_interface__`, taken from objects without DLPack and without a buffer."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref

import numpy as np
import pytest

import dlbridge
from values import fill

NATIVE, OTHER = ("<", ">") if sys.byteorder == "little" else (">", "<")


class Interface:
    """An object with an array interface, and nothing else."""

    def __init__(self, described: object, keep: object = None) -> None:
        self.__array_interface__ = described
        self.keep = keep


def of(array: np.ndarray, **changes: object) -> Interface:
    return Interface({**array.__array_interface__, **changes}, array)


ARRAYS = {
    "row-major": np.arange(6, dtype="float32").reshape(2, 3),
    "column-major": np.arange(6, dtype="int64").reshape(2, 3).T,
    "gaps": np.arange(24, dtype="uint16").reshape(4, 6)[::2, 1::3],
    "backwards": np.arange(6, dtype="complex64")[::-1],
    "broadcast": np.broadcast_to(np.float16(2), (3, 2)),
    "rank 0": np.array(True),
    "empty": np.zeros((2, 0, 3)),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_the_memory_is_shared(array):
    source = of(array)
    tensor = dlbridge.from_dlpack(source)
    assert (tensor.shape, tensor.dtype, tensor.device) == (array.shape, array.dtype.name, "cpu")
    assert tensor.data_ptr == array.ctypes.data
    assert tensor.readonly is not array.flags.writeable
    assert np.array_equal(np.from_dlpack(tensor), array)
    description = dlbridge.inspect(source)
    assert (description.protocol, description.version) == ("__array_interface__", None)


def test_without_strides_the_memory_is_contiguous():
    described = np.arange(6.0).reshape(2, 3).__array_interface__
    for strides in ({}, {"strides": None}):
        array = np.arange(6.0).reshape(2, 3)
        described = {**array.__array_interface__}
        del described["strides"]
        tensor = dlbridge.from_dlpack(Interface({**described, **strides}, array))
        assert tensor.strides == (3, 1)


class TestLifetime:
    def test_the_object_lives_as_long_as_the_tensor(self):
        source = of(np.arange(3.0))
        there = weakref.ref(source)
        tensor = dlbridge.from_dlpack(source)
        del source
        gc.collect()
        assert np.from_dlpack(tensor).tolist() == [0, 1, 2]
        assert there() is not None
        del tensor
        assert there() is None

    def test_a_dict_that_owns_the_memory_lives_as_long(self):
        class Fresh:
            """Makes its memory when it is asked, as NumPy's scalars do."""

            @property
            def __array_interface__(self):
                class Described(dict):
                    pass

                array = np.full(3, 7, dtype="uint8")
                described = Described(array.__array_interface__)
                described.array = array
                return described

        tensor = dlbridge.from_dlpack(Fresh())
        gc.collect()
        assert np.from_dlpack(tensor).tolist() == [7, 7, 7]

    def test_a_refusal_leaves_no_reference(self):
        source = of(np.arange(3.0), typestr="|O8")
        before = sys.getrefcount(source)
        for _ in range(100):
            with pytest.raises(BufferError):
                dlbridge.from_dlpack(source)
        assert sys.getrefcount(source) == before


class TestData:
    """The clause on `data` that is an object with a buffer, as Pillow's images have it."""

    @staticmethod
    def described(**changes):
        return {"version": 3, "shape": (2, 2), "typestr": f"{NATIVE}u2", **changes}

    @pytest.mark.parametrize("data", [b"abcdefgh", bytearray(b"abcdefgh")])
    def test_the_buffer_is_shared(self, data):
        tensor = dlbridge.from_dlpack(Interface(self.described(data=data)))
        assert tensor.readonly is isinstance(data, bytes)
        assert tensor.data_ptr == np.frombuffer(data, "uint8").ctypes.data
        assert bytes(tensor) == bytes(data)

    def test_the_buffer_is_held(self):
        data = bytearray(8)
        source = Interface(self.described(data=data))
        tensor = dlbridge.from_dlpack(source)
        with pytest.raises(BufferError):
            data.append(0)
        del tensor
        data.append(0)

    def test_an_offset_is_added(self):
        data = bytes(range(12))
        tensor = dlbridge.from_dlpack(Interface(self.described(data=data, offset=4)))
        assert bytes(tensor) == data[4:]

    def test_without_data_the_buffer_is_the_objects_own_and_comes_first(self):
        class Image(bytearray):
            __array_interface__ = self.described(offset=2)

        assert dlbridge.inspect(Image(12)).protocol == "buffer protocol"
        with pytest.raises(BufferError, match="data: expected an entry, found none"):
            dlbridge.from_dlpack(Interface(self.described()))

    @pytest.mark.parametrize(
        ("changes", "found"),
        [
            ({"data": bytes(7)}, "expected 0 bytes before offset 0 and 8 from it, found 7 bytes"),
            ({"data": b""}, "found 0 bytes"),
            (
                {"data": bytes(8), "offset": 1},
                "expected 0 bytes before offset 1 and 8 from it, found 8 bytes",
            ),
            ({"data": bytes(8), "offset": 2**63}, "found 8 bytes"),
            ({"data": bytes(8), "offset": 2**64 - 1}, "found"),
            ({"data": bytes(8), "offset": -1}, "offset: expected .*, found -1"),
            ({"data": bytes(8), "offset": "0"}, "offset: expected .*, found '0'"),
            (
                {"data": bytes(8), "strides": (4, 4)},
                "expected 0 bytes before offset 0 and 10 from it, found 8 bytes",
            ),
            (
                {"data": bytes(8), "strides": (-4, 2)},
                "expected 4 bytes before offset 0 and 4 from it, found 8 bytes",
            ),
            (
                {"data": memoryview(bytes(16))[::2]},
                "expected a contiguous buffer, found one with gaps",
            ),
            ({"data": "abcdefgh"}, "expected an address or an object with the buffer protocol"),
            ({"data": 4096}, "expected an address or an object with the buffer protocol"),
        ],
    )
    def test_a_lying_size_is_found_out(self, changes, found):
        with pytest.raises(BufferError, match=f"(data|offset): {found}|{found}"):
            dlbridge.from_dlpack(Interface(self.described(**changes)))

    def test_negative_strides_stay_inside_with_an_offset(self):
        data = bytes(range(8))
        described = self.described(data=data, strides=(-4, 2), offset=4)
        tensor = dlbridge.from_dlpack(Interface(described))
        assert bytes(tensor) == data[4:] + data[:4]


class TestHostile:
    @pytest.mark.parametrize(
        ("changes", "found"),
        [
            ({"version": 2}, "version: expected a number from 3 to 3, found 2"),
            ({"version": 4}, "version: expected .*, found 4"),
            ({"version": "3"}, "version: expected .*, found '3'"),
            ({"version": None}, "version: expected .*, found none"),
            ({"shape": None}, "shape: expected .*, found none"),
            ({"shape": 3}, "shape: expected a tuple of integers, found 3"),
            ({"shape": [3]}, r"shape: expected .*, found \[3\]"),
            ({"shape": (2.5,)}, "shape: expected .*, found"),
            ({"shape": (-1,)}, "extent 0 or more, found -1"),
            ({"shape": (2**64,)}, "shape: expected .*, found"),
            ({"shape": (2**62, 4)}, "element count"),
            ({"shape": (2**61,)}, "size"),
            ({"shape": (1,) * 65}, "shape: expected 64 axes or fewer, found 65"),
            ({"strides": (8, 8)}, "strides: expected 1 of them, found 2"),
            ({"strides": (3,)}, "strides: axis 0: expected a multiple of 8 bytes, .*, found 3"),
            ({"strides": (2**62,)}, "found a larger byte size"),
            ({"strides": "8"}, "strides: expected .*, found '8'"),
            ({"typestr": None}, "typestr: expected .*, found none"),
            ({"typestr": 4}, "typestr: expected .*, found 4"),
            ({"typestr": f"{OTHER}f8"}, "expected this machine's byte order"),
            ({"typestr": "|O8"}, "expected a kind of number"),
            ({"typestr": "<U4"}, "expected a kind of number"),
            ({"typestr": "<M8[ns]"}, "typestr: expected .*, found"),
            ({"typestr": "<f16"}, "expected a size that this kind of number has"),
            ({"typestr": ""}, "typestr: expected .*, found"),
            ({"data": (0, False)}, "data is null|null"),
            ({"data": (-1, False)}, "data: expected .*, found"),
            ({"data": (2**64 - 8, False)}, "data: expected .*, found address 0xfffffffffffffff8"),
            ({"data": (2**64, False)}, "data: expected .*, found"),
            ({"data": (4096,)}, "data: expected .*, found"),
            ({"data": (4096, "no")}, "data: expected .*, found"),
            ({"data": (4096, False, 0)}, "data: expected .*, found"),
            ({"data": ("4096", False)}, "data: expected .*, found"),
            ({"mask": np.zeros(3, bool)}, "mask: expected an array without a mask, found one"),
        ],
    )
    def test_a_wrong_entry_is_a_buffer_error_that_names_it(self, changes, found):
        with pytest.raises(BufferError, match=found):
            dlbridge.from_dlpack(of(np.arange(3.0), **changes))

    @pytest.mark.parametrize("missing", ["version", "shape", "typestr"])
    def test_a_missing_entry_is_a_buffer_error_that_names_it(self, missing):
        source = of(np.arange(3.0))
        del source.__array_interface__[missing]
        with pytest.raises(BufferError, match=f"{missing}: expected an entry, found none"):
            dlbridge.from_dlpack(source)

    @pytest.mark.parametrize("described", [None, 3, [], "version", ((),)])
    def test_what_is_no_dict_is_a_buffer_error(self, described):
        with pytest.raises(
            BufferError, match="__array_interface__: expected a dict, found another object"
        ):
            dlbridge.from_dlpack(Interface(described))

    def test_an_exception_of_the_property_comes_out(self):
        class Broken:
            @property
            def __array_interface__(self):
                raise RuntimeError("not now")

        with pytest.raises(RuntimeError, match="not now"):
            dlbridge.from_dlpack(Broken())

    def test_an_odd_stride_that_is_never_taken_is_fine(self):
        array = np.arange(3.0)
        tensor = dlbridge.from_dlpack(of(array, shape=(1, 3), strides=(5, 8)))
        assert np.from_dlpack(tensor).tolist() == [[0, 1, 2]]
        empty = dlbridge.from_dlpack(of(array, shape=(0, 3), strides=(5, 7)))
        assert empty.shape == (0, 3)

    def test_an_empty_array_needs_no_address(self):
        tensor = dlbridge.from_dlpack(of(np.zeros(0), data=(0, False)))
        assert (tensor.shape, tensor.data_ptr) == ((0,), 0)


def test_memory_at_an_odd_address_is_read():
    memory = (ctypes.c_char * 17)()
    at = ctypes.addressof(memory) + 1
    described = {"version": 3, "shape": (2,), "typestr": f"{NATIVE}f8", "data": (at, False)}
    tensor = dlbridge.from_dlpack(Interface(described, memory))
    fill(tensor, 2)
    assert memoryview(dlbridge.from_dlpack(tensor, copy=True)).tolist() == [2, 2]
