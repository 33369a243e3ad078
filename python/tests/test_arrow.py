"""Arrow's `__arrow_c_array__`, taken from objects without DLPack."""

from __future__ import annotations

import ctypes
import gc
import threading

import numpy as np
import pytest

import dlbridge
from hostile import new_capsule


class Schema(ctypes.Structure):
    """Arrow's `ArrowSchema`."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_char_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class Array(ctypes.Structure):
    """Arrow's `ArrowArray`."""

    _fields_ = (
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)

_kept: list[Made] = []
"""A capsule keeps nothing alive that it points to, and a collector frees in any order."""


class Made:
    """A hand-made array that counts the releases of both structs; by default int32: 0, 1, 2."""

    def __init__(self, *, validity=None, values=range(8), buffers=2, kind=b"i", **fields):
        self.memory = (ctypes.c_int32 * 8)(*values) if values is not None else None
        self.bits = validity if validity is None else (ctypes.c_uint8 * len(validity))(*validity)
        self.pointers = (ctypes.c_void_p * 2)(
            self.bits and ctypes.addressof(self.bits), self.memory and ctypes.addressof(self.memory)
        )
        self.released = {"schema": 0, "array": 0}
        self.callbacks = [
            _Release(lambda at: self._release("schema", Schema.from_address(at))),
            _Release(lambda at: self._release("array", Array.from_address(at))),
        ]
        free_schema, free_array = (ctypes.cast(c, ctypes.c_void_p).value for c in self.callbacks)
        named = {name: fields.pop(name) for name in list(fields) if name.startswith("schema_")}
        named = {name.removeprefix("schema_"): value for name, value in named.items()}
        self.schema = Schema(**{"format": kind, "release": free_schema, **named})
        plain = {"length": 3, "n_buffers": buffers, "buffers": self.pointers, "release": free_array}
        self.array = Array(**{**plain, **fields})
        self.calls = []
        _kept.append(self)

    def _release(self, which, struct):
        self.released[which] += 1
        struct.release = None

    def __arrow_c_array__(self, requested_schema=None):
        self.calls.append(requested_schema)
        return (
            new_capsule(ctypes.addressof(self.schema), b"arrow_schema", self._destructor(Schema)),
            new_capsule(ctypes.addressof(self.array), b"arrow_array", self._destructor(Array)),
        )

    def _destructor(self, kind):
        address = ctypes.addressof(self.schema if kind is Schema else self.array)

        def destroy(_capsule):
            struct = kind.from_address(address)
            if struct.release:
                _Release(struct.release)(address)

        self.callbacks.append(_Destructor(destroy))
        return self.callbacks[-1]


class TestOwnership:
    def test_both_structs_are_released_once(self):
        made = Made()
        tensor = dlbridge.from_dlpack(made)
        assert made.calls == [None]
        assert made.released == {"schema": 1, "array": 0}
        assert not made.array.release
        assert (tensor.shape, tensor.dtype, tensor.readonly) == ((3,), "int32", True)
        assert tensor.data_ptr == ctypes.addressof(made.memory)
        array = np.from_dlpack(tensor)
        del tensor
        assert (array.tolist(), made.released["array"]) == ([0, 1, 2], 0)
        del array
        assert made.released == {"schema": 1, "array": 1}

    def test_a_refused_array_stays_its_capsules(self):
        made = Made(null_count=1)
        with pytest.raises(BufferError, match=r"null_count: expected .*, found 1"):
            dlbridge.from_dlpack(made)
        gc.collect()
        assert made.released == {"schema": 1, "array": 1}

    def test_a_descriptor_that_is_invalid_after_the_move_is_released(self):
        made = Made(values=None)
        with pytest.raises(BufferError, match="null"):
            dlbridge.from_dlpack(made)
        gc.collect()
        assert made.released == {"schema": 1, "array": 1}

    def test_an_array_is_consumed_once(self):
        made = Made()
        answer = made.__arrow_c_array__()

        class Again:
            def __arrow_c_array__(self, requested_schema=None):
                return answer

        tensor = dlbridge.from_dlpack(Again())
        with pytest.raises(BufferError, match="expected a live array, found a released one"):
            dlbridge.from_dlpack(Again())
        assert np.from_dlpack(tensor).tolist() == [0, 1, 2]

    def test_it_may_be_released_on_another_thread(self):
        made = [Made() for _ in range(8)]
        tensors = [dlbridge.from_dlpack(one) for one in made]
        threads = [threading.Thread(target=tensors.pop) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [one.released for one in made] == [{"schema": 1, "array": 1}] * 8

    def test_the_offset_counts_values(self):
        made = Made(offset=2)
        tensor = dlbridge.from_dlpack(made)
        assert tensor.data_ptr == ctypes.addressof(made.memory) + 8
        assert np.from_dlpack(tensor).tolist() == [2, 3, 4]


class TestNulls:
    @pytest.mark.parametrize(
        ("offset", "validity", "fits"),
        [
            (0, [0b0000_0111], True),
            (0, [0b0000_0101], False),
            (3, [0b0011_1000], True),
            (3, [0b0010_1000], False),
            (5, [0b1110_0000], True),
        ],
    )
    def test_uncounted_nulls_are_looked_for(self, offset, validity, fits):
        made = Made(null_count=-1, validity=validity, offset=offset)
        if fits:
            assert dlbridge.from_dlpack(made).shape == (3,)
        else:
            with pytest.raises(
                BufferError, match="null_count: expected an array without nulls, found 1"
            ):
                dlbridge.from_dlpack(made)

    def test_without_validity_bits_there_are_none(self):
        assert dlbridge.from_dlpack(Made(null_count=-1)).shape == (3,)

    def test_counted_as_none_the_bits_are_not_read(self):
        assert dlbridge.from_dlpack(Made(null_count=0, validity=[0])).shape == (3,)


class TestHostile:
    @pytest.mark.parametrize(
        ("fields", "found"),
        [
            ({"length": -1}, "length, offset: expected .*, found -1 and 0"),
            ({"offset": -1}, "length, offset: expected .*, found 3 and -1"),
            ({"length": 2**62}, "length, offset: expected .*, found"),
            ({"offset": 2**62}, "length, offset: expected .*, found"),
            ({"offset": 2**63 - 1}, "length, offset: expected .*, found"),
            ({"length": 2**61}, "length, offset: expected .*, found"),
            ({"buffers": 1}, "n_buffers: expected 2, found 1"),
            ({"buffers": 3}, "n_buffers: expected 2, found 3"),
            ({"buffers": -1}, "n_buffers: expected 2, found -1"),
            ({"n_children": 1}, "n_children: expected 0 and no dictionary, found 1"),
            ({"dictionary": 4096}, "n_children: expected 0 and no dictionary"),
            ({"schema_dictionary": 4096}, "found values encoded by a dictionary"),
            ({"kind": b"b"}, 'expected numbers, found booleans.* \\("b"\\); cast to bytes'),
            ({"kind": b"u"}, "expected numbers, found strings"),
            ({"kind": b"tdD"}, "expected numbers, found dates"),
            ({"kind": b"+s"}, "expected one column, found 0"),
            ({"kind": b""}, "found a type that dlbridge does not know"),
            ({"kind": b"ii"}, 'does not know \\("ii"\\)'),
            ({"kind": b"\xff"}, "does not know"),
            ({"kind": None}, "found a released one"),
            ({"release": None}, "found a released one"),
            ({"schema_release": None}, "found a released one"),
            ({"buffers": 2, "null_count": 2}, "null_count: expected .*, found 2"),
        ],
    )
    def test_a_wrong_field_is_a_buffer_error_that_names_it(self, fields, found):
        made = Made(**fields)
        with pytest.raises(BufferError, match=found):
            dlbridge.from_dlpack(made)
        gc.collect()
        wanted = {"schema": "schema_release" not in fields, "array": "release" not in fields}
        assert made.released == wanted

    def test_null_buffers_are_refused(self):
        made = Made()
        made.array.buffers = None
        with pytest.raises(BufferError, match="buffers: expected 2 addresses, found null"):
            dlbridge.from_dlpack(made)

    @pytest.mark.parametrize("answer", [None, 3, (), (1, 2), "ab", (None, None), [1, 2]])
    def test_an_answer_that_is_no_pair_of_capsules_is_refused(self, answer):
        class Wrong:
            def __arrow_c_array__(self, requested_schema=None):
                return answer

        with pytest.raises(BufferError, match=r"(__arrow_c_array__|capsule): expected .*, found"):
            dlbridge.from_dlpack(Wrong())

    def test_capsules_of_other_names_are_refused(self):
        made = Made()
        schema, array = made.__arrow_c_array__()

        class Swapped:
            def __arrow_c_array__(self, requested_schema=None):
                return array, schema

        with pytest.raises(
            BufferError, match=r'capsule: expected one named "arrow_schema", found '
        ):
            dlbridge.from_dlpack(Swapped())
        assert made.released == {"schema": 0, "array": 0}

    def test_an_exception_of_the_method_comes_out(self):
        class Broken:
            def __arrow_c_array__(self, requested_schema=None):
                raise RuntimeError("not now")

        with pytest.raises(RuntimeError, match="not now"):
            dlbridge.from_dlpack(Broken())


NUMBERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
NUMBERS += ["float16", "float32", "float64"]


class TestPyarrow:
    """Real arrays, behind an object without their `__dlpack__`."""

    @pytest.fixture(autouse=True)
    def pyarrow(self):
        self.pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

    def wrap(self, array):
        class Wrapped:
            def __arrow_c_array__(self, requested_schema=None):
                return array.__arrow_c_array__(requested_schema)

        return Wrapped()

    @pytest.mark.parametrize("dtype", NUMBERS)
    def test_numbers_are_shared(self, dtype):
        array = self.pa.array(np.arange(5, dtype=dtype))
        tensor = dlbridge.from_dlpack(self.wrap(array))
        assert (tensor.dtype, tensor.shape, tensor.readonly) == (dtype, (5,), True)
        assert tensor.data_ptr == array.buffers()[1].address
        assert np.from_dlpack(tensor).tolist() == [0, 1, 2, 3, 4]
        assert dlbridge.inspect(self.wrap(array)).protocol == "__arrow_c_array__"

    def test_a_slice_starts_where_it_starts(self):
        array = self.pa.array(np.arange(8, dtype="int64"))[3:6]
        assert np.from_dlpack(dlbridge.from_dlpack(self.wrap(array))).tolist() == [3, 4, 5]

    def test_the_memory_outlives_the_array(self):
        before = self.pa.total_allocated_bytes()
        tensor = dlbridge.from_dlpack(self.wrap(self.pa.array([1.5, 2.5])))
        gc.collect()
        assert np.from_dlpack(tensor).tolist() == [1.5, 2.5]
        assert self.pa.total_allocated_bytes() > before
        del tensor
        assert self.pa.total_allocated_bytes() == before

    def test_an_empty_array_is_an_empty_tensor(self):
        array = self.pa.array([], self.pa.float32())
        assert dlbridge.from_dlpack(self.wrap(array)).shape == (0,)

    def test_a_slice_without_the_nulls_of_the_rest_is_taken(self):
        array = self.pa.array([None, 1, 2, 3])[1:]
        assert np.from_dlpack(dlbridge.from_dlpack(self.wrap(array))).tolist() == [1, 2, 3]

    def test_what_is_no_tensor_is_refused(self):
        pa = self.pa
        for array, found in [
            (pa.array([1, None]), "null_count: expected .*, found 1"),
            (pa.array([True, False]), r'booleans.* \("b"\); .*x\.cast\("uint8"\)'),
            (pa.array(["a"]), r'strings \("u"\)'),
            (pa.array([b"a"]), r'byte strings \("z"\)'),
            (pa.array([[1], [2]]), r'lists of any size \("\+l"\); cast to lists of one size'),
            (pa.array([{"a": 1, "b": 2}]), "one column, found 2"),
            (pa.array([[{"a": 1}]], pa.list_(pa.struct({"a": pa.int8()}), 1)), "structs"),
            (pa.array([1], pa.timestamp("ns")), r'timestamps \("tsn:"\); .*x\.cast\("int64"\)'),
            (pa.array(["a", "a"]).dictionary_encode(), r"dictionary.*x\.dictionary_decode\(\)"),
            (pa.nulls(3), r'nulls \("n"\)'),
        ]:
            with pytest.raises(BufferError, match=found):
                dlbridge.from_dlpack(self.wrap(array))

    def test_a_refusal_of_its_own_dlpack_comes_out_as_it_is(self):
        with pytest.raises(Exception, match="null"):
            dlbridge.from_dlpack(self.pa.array([1, None]))
