"""Faults that no real column has: Arrow's structs, made by hand."""

from __future__ import annotations

import ctypes
import gc
import json

import numpy as np
import pytest

import dlbridge
from hostile import new_capsule
from test_arrow import Array, Made, Schema
from test_arrow import _Destructor as Destructor
from values import arange


class Stream(ctypes.Structure):
    """Arrow's `ArrowArrayStream`."""


Get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
LastError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Stream._fields_ = [
    ("get_schema", Get),
    ("get_next", Get),
    ("get_last_error", LastError),
    ("release", Release),
    ("private_data", ctypes.c_void_p),
]


class FakeStream:
    """A stream of hand-made arrays, which counts its releases."""

    def __init__(self, *chunks, schema=None, status=(0, 0), error=b"the reason", **fields):
        self.made = [schema or Made(), *chunks]
        self.chunks = iter(chunks)
        self.status = status
        self.error = error and ctypes.create_string_buffer(error)
        self.released = 0
        functions = {
            "get_schema": Get(self._schema),
            "get_next": Get(self._next),
            "get_last_error": LastError(lambda _: self.error and ctypes.addressof(self.error)),
            "release": Release(self._release),
        }
        self.stream = Stream(**{**functions, **fields})
        self.destroy = Destructor(lambda _: None)
        _kept.append(self)

    def _schema(self, _stream, place):
        ctypes.memmove(place, ctypes.addressof(self.made[0].schema), ctypes.sizeof(Schema))
        return self.status[0]

    def _next(self, _stream, place):
        chunk = next(self.chunks, None)
        if chunk is not None:
            ctypes.memmove(place, ctypes.addressof(chunk.array), ctypes.sizeof(Array))
        return self.status[1]

    def _release(self, place):
        self.released += 1
        Stream.from_address(place).release = Release()

    def __arrow_c_stream__(self, requested_schema=None):
        name = b"arrow_array_stream"
        return new_capsule(ctypes.addressof(self.stream), name, self.destroy)


_kept: list[FakeStream] = []


def values(column):
    return np.from_dlpack(dlbridge.from_dlpack(column)).tolist()


class TestHostileStreams:
    def test_stream_schema_and_chunks_are_released_once(self):
        for chunks in [(), (Made(),), (Made(), Made())]:
            fake = FakeStream(*chunks)
            copy = dlbridge.from_dlpack(fake, copy=True)
            assert (fake.released, fake.made[0].released["schema"]) == (1, 1)
            assert [made.released["array"] for made in chunks] == [1] * len(chunks)
            assert copy.tolist() == [0, 1, 2] * len(chunks)

    def test_a_chunk_lives_longer_than_its_stream(self):
        chunk = Made()
        fake = FakeStream(Made(length=0), chunk, Made(length=0))
        tensor = dlbridge.from_dlpack(fake)
        assert (fake.released, chunk.released["array"]) == (1, 0)
        assert tensor.data_ptr == ctypes.addressof(chunk.memory)
        del tensor
        assert chunk.released["array"] == 1

    def test_refused_chunks_are_released_once(self):
        for chunks, found in [
            ((Made(), Made()), "found several"),
            ((Made(length=-1),), "length, offset"),
            ((Made(null_count=1),), "null_count"),
            ((Made(values=None),), "null"),
        ]:
            fake = FakeStream(*chunks)
            with pytest.raises(BufferError, match=found):
                dlbridge.from_dlpack(fake)
            gc.collect()
            assert fake.released == 1
            assert [made.released["array"] for made in chunks] == [1] * len(chunks)
        for chunk in [Made(values=None), Made(offset=2**62), Made(length=2**61)]:
            with pytest.raises(BufferError, match=r"null|length, offset"):
                dlbridge.from_dlpack(FakeStream(Made(), chunk), copy=True)

    @pytest.mark.parametrize(
        ("fields", "found"),
        [
            ({"status": (5, 0)}, "found error 5: the reason"),
            ({"status": (0, 12)}, "found error 12: the reason"),
            ({"status": (0, 12), "error": None}, "found error 12: it gave no reason"),
            ({"get_schema": Get()}, "found no function"),
            ({"get_next": Get()}, "found no function"),
            ({"status": (0, 1), "get_last_error": LastError()}, "error 1: it gave no reason"),
            ({"release": Release()}, "found a released one"),
        ],
    )
    def test_a_stream_that_fails_says_why(self, fields, found):
        fake = FakeStream(Made(), **fields)
        with pytest.raises(BufferError, match=found):
            dlbridge.from_dlpack(fake)
        assert fake.released == ("release" not in fields)

    def test_a_stream_is_consumed_once(self):
        fake = FakeStream(Made())
        dlbridge.from_dlpack(fake)
        with pytest.raises(BufferError, match="a live stream, found a released one"):
            dlbridge.from_dlpack(fake)

    def test_children_that_are_missing_or_too_short_are_refused(self):
        pointers = ctypes.c_void_p * 1
        inner, nothing = Made(), pointers(None)
        for fields, found in [
            ({"n_children": 0}, "n_children: expected 1 and no dictionary, found 0"),
            ({"n_children": 2}, "n_children: expected 1 and no dictionary, found 2"),
            ({"n_children": 1, "children": None}, "expected one child, found 1, or null"),
            ({"n_children": 1, "children": ctypes.addressof(nothing)}, "or null"),
            ({"buffers": 2}, "n_buffers: expected 1, found 2"),
            ({"length": 2}, "length: expected 4 values from 0 on, found 3"),
            ({"offset": 1}, "length: expected 2 values from 2 on, found 3"),
            ({"offset": 2**62}, "length, offset: expected bytes that can be counted"),
            ({}, None),
        ]:
            children = pointers(ctypes.addressof(inner.array))
            schemas = pointers(ctypes.addressof(inner.schema))
            plain = {"n_children": 1, "children": ctypes.addressof(children), "length": 1}
            schema = {"schema_n_children": 1, "schema_children": ctypes.addressof(schemas)}
            made = Made(kind=b"+w:2", **{"buffers": 1, **schema, **plain, **fields})
            if found:
                with pytest.raises(BufferError, match=found):
                    dlbridge.from_dlpack(made)
            else:
                assert values(made) == [[0, 1]]

    @pytest.mark.parametrize("size", [b"", b"-1", b"+2", b"99999999999", b"2 "])
    def test_a_list_size_is_a_number(self, size):
        with pytest.raises(BufferError, match="does not know"):
            dlbridge.from_dlpack(Made(kind=b"+w:" + size))

    def test_a_schema_in_a_circle_ends(self):
        made = Made(kind=b"+w:1")
        children = (ctypes.c_void_p * 1)(ctypes.addressof(made.schema))
        made.schema.n_children, made.schema.children = 1, ctypes.addressof(children)
        with pytest.raises(BufferError, match="expected numbers, found"):
            dlbridge.from_dlpack(made)

    @pytest.mark.parametrize(
        "shape", ["[3, 4]", "[-1, -2]", "[2.5]", '"2"', "[]", "no JSON", f"[{2**62}, 4, 2]"]
    )
    def test_a_tensor_type_of_another_shape_is_refused(self, shape):
        with pytest.raises(BufferError, match="expected the shape of 2 values, found"):
            dlbridge.from_dlpack(column_of_tensors(shape))

    def test_a_schema_that_is_released_while_parameters_are_parsed_is_not_read(self, monkeypatch):
        made = column_of_tensors("[2, 1]")
        loads = json.loads

        def release_and_load(text):
            made.schema.format = None
            made.schema.n_children, made.schema.children = 1, 8
            return loads(text)

        monkeypatch.setattr(json, "loads", release_and_load)
        assert values(made) == [[[0], [1]]]


def column_of_tensors(shape):
    """One row of two values, of the extension type of tensors."""
    pairs = {"name": "arrow.fixed_shape_tensor", "metadata": f'{{"shape": {shape}}}'}
    encoded = len(pairs).to_bytes(4, "little")
    for key, value in pairs.items():
        for text in (f"ARROW:extension:{key}", value):
            encoded += len(text).to_bytes(4, "little") + text.encode()
    inner, pointers = Made(), ctypes.c_void_p * 1
    kept = (
        ctypes.create_string_buffer(encoded, len(encoded)),
        pointers(ctypes.addressof(inner.array)),
        pointers(ctypes.addressof(inner.schema)),
    )
    metadata, arrays, schemas = (ctypes.addressof(it) for it in kept)
    schema = {"schema_n_children": 1, "schema_children": schemas}
    array = {"buffers": 1, "length": 1, "n_children": 1, "children": arrays}
    made = Made(kind=b"+w:2", **schema, **array)
    made.kept = kept
    place = ctypes.addressof(made.schema) + Schema.metadata.offset
    ctypes.c_void_p.from_address(place).value = metadata
    return made


class TestExport:
    def test_a_child_may_be_moved_away(self):
        tensor = arange(6, dtype="int32").reshape(2, 3)
        schema, array = tensor.__arrow_c_array__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        parent = Array.from_address(pointer(array, b"arrow_array"))
        assert Schema.from_address(pointer(schema, b"arrow_schema")).format == b"+w:3"
        child = Array.from_address(ctypes.c_void_p.from_address(parent.children).value)
        moved = Array.from_buffer_copy(child)
        child.release = None
        del schema, array, parent, child
        gc.collect()
        found = (ctypes.c_int32 * 6).from_address(moved.buffers[1])
        assert (moved.length, list(found)) == (6, [0, 1, 2, 3, 4, 5])
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(moved.release)(ctypes.addressof(moved))
        assert not moved.release
