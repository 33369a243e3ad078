"""Exchange tables with one fault each, and the check that finds it.

Tests import this; it holds none.
"""

from __future__ import annotations

import ctypes

from dlpack_doctor import abi, elements
from dlpack_doctor.export import Export, drop_capsules
from dlpack_doctor.producer.exchange import _Allocate, _Borrow, _FromPy, _Stream, _ToPy
from planted import Array, Taken

_incref = ctypes.pythonapi.Py_IncRef
_incref.argtypes = [ctypes.py_object]


class Imported(Taken):
    """What the table makes of a managed tensor: exported again over the same memory."""

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, max_version=None, **keywords):
        return _over(self).export_as(max_version is not None)


def _over(taken):
    array = Array(taken.shape, taken.dtype)
    array.memory = _Borrowed(taken)
    return array


class _Borrowed:
    def __init__(self, taken):
        self.taken, self.address = taken, taken.pointer
        self.size = 4 * len(taken.tolist())


class _Managed:
    """A managed tensor that the table was given."""

    def __init__(self, address):
        self.address = address
        self.raw = abi.DLManagedTensorVersioned.from_address(address)
        self.deleter = self.raw.deleter

    def release(self):
        abi.Deleter(self.deleter)(self.address)


class Table:
    """The functions of a table without a fault, and the capsule of it."""

    major, null, name = 1, (), abi.EXCHANGE_NAME

    def __init__(self):
        functions = {
            "managed_tensor_allocator": _Allocate(self.allocate),
            "managed_tensor_from_py_object_no_sync": _FromPy(self.from_py),
            "managed_tensor_to_py_object_no_sync": _ToPy(self.to_py),
            "dltensor_from_py_object_no_sync": _Borrow(self.borrow),
            "current_work_stream": _Stream(self.stream),
        }
        self.kept = functions
        self.raw = abi.DLPackExchangeAPI(self.major, 3)
        for name, function in functions.items():
            if name not in self.null:
                setattr(self.raw, name, abi.address_of(function))
        self.capsule = abi.new_capsule(ctypes.addressof(self.raw), self.name)

    def exported(self, array):
        """The address of a managed tensor that is the caller's."""
        export = Export(array.__dlpack__(max_version=(1, 3)))
        drop_capsules()
        return export.take().export.address

    def from_py(self, array, out):
        out[0] = self.exported(array)
        return 0

    def borrow(self, array, out):
        numbers = ctypes.c_int64 * max(len(array.shape), 1)
        array.borrowed = (numbers(*array.shape), numbers(*elements.row_major(array.shape)))
        triple = elements.DTYPES[array.dtype]
        shape, strides = (ctypes.cast(n, ctypes.POINTER(ctypes.c_int64)) for n in array.borrowed)
        address = array.memory.address
        out[0] = abi.DLTensor(address, 1, 0, len(array.shape), *triple, shape, strides, 0)
        return 0

    def to_py(self, address, out):
        managed = _Managed(address)
        if managed.raw.major != 1:
            return -1
        array = self.imported(managed)
        _incref(array)
        out[0] = id(array)
        return 0

    def imported(self, managed):
        export = Export(abi.new_capsule(managed.address, abi.VERSIONED))
        drop_capsules()
        return Imported(export, lambda _export: managed)

    def stream(self, kind, number, out):
        out[0] = None
        return 0

    def allocate(self, prototype, out, context, set_error):
        tensor = prototype[0]
        out[0] = self.exported(Array(tuple(tensor.shape[: tensor.ndim])))
        return 0


class FunctionIsNull(Table):
    null = ("current_work_stream",)


class AllocatorIsNull(Table):
    null = ("managed_tensor_allocator",)


class AnotherName(Table):
    name = b"exchange"


class NoCapsule(Table):
    def __init__(self):
        super().__init__()
        self.capsule = ctypes.addressof(self.raw)


class ExportsAnotherShape(Table):
    def exported(self, array):
        address = super().exported(array)
        raw = abi.DLManagedTensorVersioned.from_address(address)
        raw.tensor.ndim = min(raw.tensor.ndim, 1)
        return address

    def allocate(self, prototype, out, context, set_error):
        out[0] = Table.exported(self, Array((2, 3)))
        return 0


class ExportsOtherFlags(Table):
    def from_py(self, array, out):
        super().from_py(array, out)
        abi.DLManagedTensorVersioned.from_address(out[0]).flags = abi.READ_ONLY
        return 0


class BorrowsAnotherType(Table):
    def borrow(self, array, out):
        super().borrow(array, out)
        out[0].code = 0
        return 0


class BorrowFails(Table):
    def borrow(self, array, out):
        return -1


class ImportLeaks(Table):
    def imported(self, managed):
        managed.release = lambda: None
        return super().imported(managed)


class ImportReleasesTwice(Table):
    def imported(self, managed):
        deleter = managed.deleter

        def release():
            for _ in range(2):
                abi.Deleter(deleter)(managed.address)

        managed.release = release
        return super().imported(managed)


class ImportReleasesAtOnce(Table):
    def imported(self, managed):
        array = super().imported(managed)
        managed.release()
        managed.release = lambda: None
        return array


class ImportIgnoresTheMajorVersion(Table):
    def to_py(self, address, out):
        abi.DLManagedTensorVersioned.from_address(address).major = 1
        return super().to_py(address, out)


class StreamIsUntouched(Table):
    def stream(self, kind, number, out):
        return 0


class StreamFails(Table):
    def stream(self, kind, number, out):
        return -1


class AllocatesAnotherShape(Table):
    def allocate(self, prototype, out, context, set_error):
        out[0] = self.exported(Array((3, 2)))
        return 0


class AllocatorFailsSilently(Table):
    def allocate(self, prototype, out, context, set_error):
        return -1


def array_type(table):
    """A good array type that publishes a table."""
    published = table()
    body = {abi.EXCHANGE_ATTRIBUTE: published.capsule, "published": published}
    return type(table.__name__, (Array,), body)


FAULTS = {
    FunctionIsNull: "table",
    AllocatorIsNull: "table",
    AnotherName: "table",
    NoCapsule: "table",
    ExportsAnotherShape: "table-agrees",
    ExportsOtherFlags: "table-agrees",
    BorrowsAnotherType: "table-borrow",
    BorrowFails: "table-borrow",
    ImportLeaks: "table-import",
    ImportReleasesTwice: "table-import",
    ImportReleasesAtOnce: "table-import",
    ImportIgnoresTheMajorVersion: "table-major",
    StreamIsUntouched: "table-stream",
    StreamFails: "table-stream",
    AllocatesAnotherShape: "table-allocator",
    AllocatorFailsSilently: "table-allocator",
}
