"""Producers that lie, change their minds, or answer with what is not theirs to give, and structs of
Arrow with faults that no real column has.

`docs/hostile.md` lists all faults; wrong fields are in `test_producers`, capsules in
`test_release`, exchange tables in the tests of `dlbridge-pyo3`."""

from __future__ import annotations

import ctypes
import gc
import json
import threading

import numpy as np
import pytest

import dlbridge
import hostile
from hostile import (
    IS_COPIED,
    READ_ONLY,
    SUBBYTE_PADDED,
    Managed,
    Producer,
    name_of,
    new_capsule,
    read,
)
from support import arange, failures_in_threads
from test_arrow import Array, Made, Schema
from test_arrow import _Destructor as Destructor

KINDS = pytest.mark.parametrize("legacy", [False, True], ids=["versioned", "legacy"])
GPU, HOST = (2, 0), (1, 0)


no_double_release = hostile.no_double_release


class TestFieldsThatMayBeAnything:
    @KINDS
    def test_the_context_is_the_producers_business(self, legacy):
        made = Managed(legacy=legacy)
        made.raw.manager_ctx = 1
        tensor = dlbridge.from_dlpack(made.capsule())
        assert tensor.data_ptr == made.base
        del tensor
        assert made.releases == 1

    @pytest.mark.parametrize("device", [(1, -1), (1, 2**31 - 1), (-1, 0), (2**31 - 1, -(2**31))])
    def test_a_device_is_two_numbers(self, device):
        made = Managed(device=device)
        tensor = dlbridge.from_dlpack(made.capsule())
        assert tensor.__dlpack_device__() == device
        del tensor
        assert made.releases == 1

    def test_all_flags_at_once_are_carried(self):
        made = Managed(flags=2**64 - 1)
        tensor = dlbridge.from_dlpack(made.capsule())
        assert tensor.readonly
        raw = read(tensor.__dlpack__(max_version=(1, 3)))
        # The share is no copy made for its consumer, whatever the first one was.
        assert raw.flags == 2**64 - 1 - IS_COPIED
        assert raw.flags & (READ_ONLY | SUBBYTE_PADDED)
        del tensor, raw
        gc.collect()
        assert made.releases == 1


class TestDevice:
    """What `__dlpack_device__` says is believed only where a stream is to be named."""

    LIES = ((2, 0), (99, 7), (1, None), None, "cpu", (1,), (1, 0, 0), ("cpu", 0))

    @pytest.mark.parametrize("lie", LIES, ids=str)
    def test_a_lie_changes_nothing(self, lie):
        made = Managed()
        producer = Producer(lambda **_keywords: made.capsule(), device=lie)
        tensor = dlbridge.from_dlpack(producer)
        assert (tensor.device, tensor.data_ptr) == ("cpu", made.base)
        del tensor
        assert made.releases == 1
        made = Managed()
        assert dlbridge.from_dlpack(producer, device="cpu", copy=False).device == "cpu"
        assert made.releases == 1

    def test_one_that_raises_is_not_asked(self):
        made = Managed()

        class Raises(Producer):
            def __dlpack_device__(self):
                raise RuntimeError("of the device")

        producer = Raises(lambda **_keywords: made.capsule())
        assert dlbridge.from_dlpack(producer).data_ptr == made.base
        with pytest.raises(RuntimeError, match="of the device"):
            dlbridge.from_dlpack(producer, stream=1)
        assert made.releases == 1

    def test_a_host_tensor_said_to_be_on_a_gpu_is_a_host_tensor(self):
        made = Managed()
        producer = Producer(lambda **_keywords: made.capsule(), device=GPU)
        tensor = dlbridge.from_dlpack(producer, stream=1)
        assert (tensor.device, producer.calls[0]["stream"]) == ("cpu", 1)
        del tensor
        assert made.releases == 1

    def test_a_gpu_tensor_said_to_be_on_the_host_is_not_touched(self):
        made = Managed(device=GPU)
        producer = Producer(lambda **_keywords: made.capsule(), device=HOST)
        tensor = dlbridge.from_dlpack(producer)
        assert tensor.device == "cuda:0"
        with pytest.raises(BufferError, match="found memory on cuda:0"):
            memoryview(tensor)
        del tensor
        assert made.releases == 1


class TestChangedMinds:
    """A first answer on a GPU; the second, for the host, is whatever it is."""

    def ask(self, second):
        first = Managed(device=GPU)

        def answer(**keywords):
            return second() if "dl_device" in keywords else first.capsule()

        producer = Producer(answer, device=GPU)
        try:
            return first, dlbridge.from_dlpack(producer, device="cpu")
        finally:
            gc.collect()
            assert first.releases == 1
            assert len(producer.calls) == 2

    def test_another_shape_and_type_are_what_they_say(self):
        second = Managed(shape=[2, 2], dtype=(0, 16, 1))
        _, tensor = self.ask(second.capsule)
        assert (tensor.shape, tensor.dtype, tensor.data_ptr) == ((2, 2), "int16", second.base)
        assert second.releases == 0
        del tensor
        assert second.releases == 1

    def test_another_abi_is_taken(self):
        second = Managed(legacy=True)
        self.ask(second.capsule)
        assert second.releases == 1

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"device": GPU}, "device: expected cpu, found cuda:0 from the producer"),
            ({"ndim": -1}, "ndim: expected .*, found -1"),
            ({"version": (2, 0)}, r"version: expected .*, found 2\.0"),
            ({"data": None}, "data: expected .* elements, found a null pointer"),
        ],
        ids=lambda value: str(value) if isinstance(value, dict) else "",
    )
    def test_a_second_answer_is_checked_like_the_first(self, fields, message):
        second = Managed(**fields)
        with pytest.raises(BufferError, match=message):
            self.ask(second.capsule)
        gc.collect()
        assert second.releases == 1

    def test_a_second_answer_that_is_no_capsule_is_a_type_error(self):
        with pytest.raises(TypeError, match="capsule: expected"):
            self.ask(lambda: 42)

    def test_a_second_answer_that_raises_is_the_cause(self):
        def fail():
            raise ZeroDivisionError("not again")

        with pytest.raises(
            BufferError, match=r"expected cpu, found .*, and the producer refused"
        ) as raised:
            self.ask(fail)
        assert isinstance(raised.value.__cause__, ZeroDivisionError)

    def test_each_of_two_imports_gets_what_it_is_told_then(self):
        answers = [Managed(shape=[2]), Managed(shape=[3], dtype=(0, 32, 1))]
        left = iter(answers)
        producer = Producer(lambda **_keywords: next(left).capsule())
        first, second = dlbridge.from_dlpack(producer), dlbridge.from_dlpack(producer)
        assert (first.shape, first.dtype) == ((2,), "float32")
        assert (second.shape, second.dtype) == ((3,), "int32")
        del first, second
        assert [made.releases for made in answers] == [1, 1]


class TestConsumedTwice:
    @KINDS
    def test_a_producer_that_consumed_its_own_capsule_is_refused(self, legacy):
        made = Managed(legacy=legacy)
        kept = []

        def answer(**_keywords):
            capsule = made.capsule()
            kept.append(dlbridge.from_dlpack(capsule))
            return capsule

        with pytest.raises(BufferError, match="consumed already"):
            dlbridge.from_dlpack(Producer(answer))
        assert made.releases == 0
        kept.clear()
        assert made.releases == 1

    def test_a_capsule_that_is_consumed_while_it_is_passed_is_consumed_once(self):
        made = Managed()
        capsule = made.capsule()
        taken = []

        class Greedy(Producer):
            @property
            def __dlpack__(self):
                taken.append(dlbridge.from_dlpack(capsule))
                return lambda **_keywords: capsule

        with pytest.raises(BufferError, match="consumed already"):
            dlbridge.from_dlpack(Greedy(None))
        assert name_of(capsule) == b"used_dltensor_versioned"
        taken.clear()
        assert made.releases == 1


class TestDeleters:
    @KINDS
    def test_one_that_raises_is_called_once_and_disturbs_nothing(self, legacy, monkeypatch):
        unraisable = []
        monkeypatch.setattr("sys.unraisablehook", unraisable.append)

        def fail():
            raise ValueError("of the deleter")

        made = Managed(legacy=legacy, on_release=fail)
        tensor = dlbridge.from_dlpack(made.capsule())
        del tensor
        assert made.releases == 1
        assert [type(entry.exc_value) for entry in unraisable] == [ValueError]

    @KINDS
    def test_one_written_in_python_sees_no_exception_that_is_on_its_way(self, legacy):
        seen = []
        # An index of -1 is looked at twice: it is also how C says that there is an exception.
        made = Managed(legacy=legacy, on_release=lambda: seen.append([1, 2, 3][-1]))
        with pytest.raises(ZeroDivisionError, match="division"):
            # The tensor waits on the interpreter's stack for an argument that fails.
            print(dlbridge.from_dlpack(made.capsule()), 1 / 0)
        assert (made.releases, seen) == (1, [3])

    def test_nor_does_it_behind_a_share_of_a_share(self):
        seen = []
        made = Managed(on_release=lambda: seen.append([1, 2, 3][-1]))
        first = [dlbridge.from_dlpack(made.capsule())]
        shares = [dlbridge.from_dlpack(dlbridge.from_dlpack(first.pop()))]
        with pytest.raises(ZeroDivisionError, match="division"):
            print(shares.pop(), 1 / 0)
        assert (made.releases, seen) == (1, [3])

    @KINDS
    def test_one_that_runs_on_another_thread_runs_once(self, legacy):
        threads = []
        made = Managed(legacy=legacy, on_release=lambda: threads.append(threading.get_ident()))
        capsule = made.capsule()
        # Taken there, too: without the global lock, an object dies on the thread that made it.
        assert failures_in_threads(1, lambda: dlbridge.from_dlpack(capsule)) == []
        assert made.releases == 1
        assert threads != [threading.get_ident()]

    def test_none_is_called_where_nothing_was_consumed(self):
        made = Managed()
        capsule = made.capsule()
        for wrong in ({"device": "cuda:x"}, {"copy": "no"}, {"stream": object()}):
            with pytest.raises((TypeError, ValueError, BufferError)):
                dlbridge.from_dlpack(capsule, **wrong)
        assert (made.releases, name_of(capsule)) == (0, b"dltensor_versioned")
        del capsule
        assert made.releases == 1


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
        """Python code (`json.loads`) ran while an Arrow schema was being read: a consumer that
        released it left dangling pointers."""
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
