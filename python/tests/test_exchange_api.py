"""The C exchange API: taken where a type publishes it, and published by dlbridge.Tensor."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import sys
import time
import warnings
import weakref

import numpy as np
import pytest

import dlbridge
from dlpack_doctor.abi import DLTensor
from support import arange

CAPSULE_NAME = b"dlpack_exchange_api"


SetError = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
# Called as from C with the interpreter attached; an exception that is set is raised.
Allocate = ctypes.PYFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(DLTensor),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    SetError,
)
FromObject = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
ToObject = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.py_object))
Borrow = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
Stream = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class Table(ctypes.Structure):
    """DLPackExchangeAPI."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("prev_api", ctypes.c_void_p),
        ("allocate", Allocate),
        ("from_object", FromObject),
        ("to_object", ToObject),
        ("borrow", Borrow),
        ("stream", Stream),
    )


def pointer(capsule: object, name: bytes) -> int:
    function = ctypes.pythonapi.PyCapsule_GetPointer
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return function(capsule, name)


@pytest.fixture
def table() -> Table:
    capsule = dlbridge.Tensor.__dlpack_c_exchange_api__
    return Table.from_address(pointer(capsule, CAPSULE_NAME))


def test_the_table_is_complete_and_of_this_version(table):
    assert (table.major, table.minor) == dlbridge.DLPACK_VERSION
    assert table.prev_api is None
    callbacks = (table.allocate, table.from_object, table.to_object, table.borrow, table.stream)
    assert all(callbacks)


def test_a_tensor_goes_out_and_comes_in_through_the_table(table):
    tensor = arange(6, dtype="int32")
    raw = ctypes.c_void_p()
    assert table.from_object(tensor, raw) == 0
    result = ctypes.py_object()
    assert table.to_object(raw, result) == 0
    again = result.value
    assert isinstance(again, dlbridge.Tensor)
    assert again.data_ptr == tensor.data_ptr
    del tensor
    assert np.from_dlpack(again).tolist() == [0, 1, 2, 3, 4, 5]


def test_the_borrowed_descriptor_is_the_tensor_itself(table):
    tensor = dlbridge.zeros((2, 3), dtype="float32")
    raw = DLTensor()
    assert table.borrow(tensor, raw) == 0
    assert raw.data == tensor.data_ptr
    assert raw.shape[: raw.ndim] == [2, 3]
    assert raw.strides[: raw.ndim] == [3, 1]
    assert (raw.code, raw.bits, raw.lanes, raw.byte_offset) == (2, 32, 1, 0)


@pytest.mark.parametrize("wrong", [None, 3, [], np.zeros(3)])
def test_an_object_of_another_type_is_a_type_error(table, wrong):
    with pytest.raises(TypeError):
        table.from_object(wrong, ctypes.c_void_p())
    with pytest.raises(TypeError):
        table.borrow(wrong, DLTensor())


def test_null_is_no_tensor(table):
    with pytest.raises(BufferError, match="null pointer"):
        table.to_object(None, ctypes.py_object())


def test_host_memory_has_no_stream(table):
    stream = ctypes.c_void_p(1)
    assert table.stream(1, 0, stream) == 0
    assert stream.value is None


def prototype(shape: list[int], device_type: int = 1, bits: int = 32) -> DLTensor:
    extents = (ctypes.c_int64 * len(shape))(*shape)
    return DLTensor(
        device_type=device_type, ndim=len(shape), code=2, bits=bits, lanes=1, shape=extents
    )


def test_the_allocator_makes_zeroed_memory_of_the_prototype(table):
    raw = ctypes.c_void_p()
    assert table.allocate(prototype([2, 3]), raw, None, SetError()) == 0
    result = ctypes.py_object()
    assert table.to_object(raw, result) == 0
    array = np.from_dlpack(result.value)
    assert array.dtype == np.float32
    assert array.tolist() == [[0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (prototype([2], device_type=2), b"cuda"),
        (prototype([-1]), b"extent"),
        (prototype([2], bits=0), b"bits"),
        (DLTensor(device_type=1, ndim=-1, bits=8, lanes=1), b"ndim"),
        (DLTensor(device_type=1, ndim=2, bits=8, lanes=1), b"shape"),
    ],
)
def test_the_allocator_says_what_it_cannot_make(table, wrong, reason):
    said = []
    report = SetError(lambda context, kind, message: said.append((context, kind, message)))
    assert table.allocate(wrong, ctypes.c_void_p(), 42, report) == -1
    ((context, kind, message),) = said
    assert (context, kind) == (42, b"BufferError")
    assert reason in message


def test_an_attribute_that_is_no_table_is_ignored():
    class Odd:
        __dlpack_c_exchange_api__ = 3

        def __dlpack__(self, **keywords):
            return np.arange(3).__dlpack__(**keywords)

    assert dlbridge.inspect(Odd()).protocol == "__dlpack__, versioned"


def new_capsule(address: int, name: bytes) -> object:
    function = ctypes.pythonapi.PyCapsule_New
    function.restype = ctypes.py_object
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return function(address, name, None)


def producer(table: Table) -> type:
    """A class that publishes a table and has `__dlpack__` to fall back on."""

    class Producer:
        keep = table
        __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(table), CAPSULE_NAME)

        def __dlpack__(self, **keywords):
            return np.arange(3).__dlpack__(**keywords)

    return Producer


def working(table: Table) -> Table:
    """A copy of a table that makes a tensor of whatever it is given."""
    copy = Table.from_buffer_copy(table)
    copy.from_object = FromObject(lambda _, out: table.from_object(arange(4), out))
    return copy


def test_a_newer_major_version_is_passed_over_for_an_older_table(table):
    older = working(table)
    newer = Table(major=2, prev_api=ctypes.addressof(older))
    kind = producer(newer)
    kind.older = older
    assert dlbridge.from_dlpack(kind()).shape == (4,)


def test_a_table_of_unknown_versions_alone_is_not_called():
    assert dlbridge.inspect(producer(Table(major=2))()).protocol == "__dlpack__, versioned"


def test_a_table_without_the_callback_is_not_called(table):
    emptied = working(table)
    kind = producer(emptied)
    emptied.from_object = FromObject()
    assert dlbridge.inspect(kind()).protocol == "__dlpack__, versioned"


def test_where_the_table_fails_dlpack_is_asked(table):
    broken = working(table)
    broken.from_object = FromObject(lambda _object, _out: -1)
    assert dlbridge.inspect(producer(broken)()).protocol == "__dlpack__, versioned"


def test_a_callback_that_fails_without_an_exception_is_a_clear_error(table):
    broken = working(table)
    kind = producer(broken)
    broken.from_object = FromObject(lambda _object, _out: -1)
    del kind.__dlpack__
    with pytest.raises(BufferError, match="failed without a reason"):
        dlbridge.from_dlpack(kind())


def test_a_class_at_the_address_of_an_older_one_is_told_from_it(table):
    """Classes come and go at the same addresses; each is imported as it says itself."""
    making, plain, addresses = working(table), set(), set()
    for _ in range(300):
        kind = type("Plain", (), {})
        plain.add(id(kind))
        with pytest.raises(TypeError, match=r"expected an array .*, found "):
            dlbridge.from_dlpack(kind())
        del kind
        gc.collect(1)
        kind = producer(making)
        addresses.add(id(kind))
        assert dlbridge.inspect(kind()).protocol == "C exchange API"
        del kind
        gc.collect(1)
    assert plain & addresses, "no address was used again"


def test_short_lived_types_are_not_kept(table):
    """Types without a table are freed at once; with one, a few are kept until others come."""
    making, kinds = working(table), []
    for _ in range(2000):
        with pytest.raises(TypeError):
            dlbridge.from_dlpack(type("Plain", (), {})())
    for _ in range(2000):
        kind = producer(making)
        dlbridge.from_dlpack(kind())
        kinds.append(weakref.ref(kind))
        del kind
    gc.collect()
    assert sum(kind() is not None for kind in kinds) <= 128
    assert not [kind for kind in object.__subclasses__() if kind.__name__ == "Plain"]


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        self.torch = pytest.importorskip("torch", reason="torch is not installed")

    def test_it_is_imported_without_a_python_call(self):
        tensor = self.torch.ones(2, 3)
        description = dlbridge.inspect(tensor)
        assert description.protocol == "C exchange API"
        assert description.data_ptr == tensor.data_ptr()

    def test_references_return_to_where_they_were(self):
        tensor = self.torch.ones(2, 3)
        before = sys.getrefcount(tensor)
        for _ in range(1000):
            dlbridge.from_dlpack(tensor)
        assert sys.getrefcount(tensor) == before

    def test_a_lazily_conjugated_tensor_is_refused(self):
        tensor = self.torch.ones(2, dtype=self.torch.complex64) * 1j
        assert dlbridge.from_dlpack(tensor).dtype == "complex64"
        with pytest.raises(BufferError, match="resolve_conj"):
            dlbridge.from_dlpack(tensor.conj())
        resolved = dlbridge.from_dlpack(tensor.conj().resolve_conj())
        assert np.from_dlpack(resolved).tolist() == [-1j, -1j]

    def test_a_fake_tensor_is_refused(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            fake = self.torch.ones(3)
        with pytest.raises(
            BufferError, match=r"with memory, found .*FakeTensor without; a fake tensor"
        ):
            dlbridge.from_dlpack(fake)

    def refused(self):
        """Tensors that PyTorch's table fails at, with the first words of their own refusal."""
        torch = self.torch
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
            compressed = torch.eye(3).to_sparse_csr()
        other_layout = "Can't export tensors with layout other than torch.strided"
        return {
            torch.ones(3).to_sparse(): other_layout,
            compressed: other_layout,
            torch.ones(3).to_mkldnn(): other_layout,
            torch.empty(3, device="meta"): "Cannot pack tensors on meta",
            quantized: "QUInt/QInt types",
        }

    def test_a_failure_of_the_table_is_torchs_one_line(self):
        for tensor, words in self.refused().items():
            with pytest.raises(BufferError) as caught:
                dlbridge.from_dlpack(tensor)
            assert str(caught.value).startswith(words)
            assert "\n" not in str(caught.value)
            assert caught.value.__context__ is None

    def test_a_tensor_of_a_transform_is_refused_in_one_line(self):
        refused = []

        def look(tensor):
            with pytest.raises(TypeError, match=r"torch\.vmap or torch\.func traces") as caught:
                dlbridge.from_dlpack(tensor)
            refused.append(str(caught.value))
            return tensor

        self.torch.func.vmap(look)(self.torch.zeros(2, 3))
        assert len(refused) == 1
        assert "\n" not in refused[0]

    def test_a_refusal_costs_what_torchs_own_does(self):
        """Not a thousand times as much: the table is not called for what it is known to fail at."""

        def best(ask, **keywords) -> float:
            def once() -> float:
                start = time.perf_counter()
                with contextlib.suppress(BufferError):
                    ask(**keywords)
                return time.perf_counter() - start

            return min(once() for _ in range(50))

        for tensor in self.refused():
            own = best(tensor.__dlpack__, max_version=(1, 3))
            assert best(functools.partial(dlbridge.from_dlpack, tensor)) < 20 * own

    def test_after_a_refusal_others_still_go_through_the_table(self):
        with pytest.raises(BufferError):
            dlbridge.from_dlpack(self.torch.ones(3).to_sparse())
        for tensor in (self.torch.ones(3), self.torch.ones(3, requires_grad=True)):
            assert dlbridge.inspect(tensor).protocol == "C exchange API"

    def test_a_parameter_is_imported_like_its_tensor(self):
        parameter = self.torch.nn.Parameter(self.torch.ones(3))
        assert dlbridge.inspect(parameter).data_ptr == parameter.data_ptr()
