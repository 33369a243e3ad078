"""The C exchange API: a table of functions on the type, which must agree with the methods."""

from __future__ import annotations

import ctypes
from typing import Any

from dlpack_doctor import abi, memory
from dlpack_doctor.export import Export, best
from dlpack_doctor.producer.odd import exported_by
from dlpack_doctor.registry import check
from dlpack_doctor.source import Managed
from dlpack_doctor.subject import Array, Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, describe, failed, passed, warned

_FromPy = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
_ToPy = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
_Borrow = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(abi.DLTensor))
_Stream = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)
_SetError = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
_Allocate = ctypes.PYFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(abi.DLTensor),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    _SetError,
)
UNTOUCHED = 0x5A5A


def _capsule(array: Array) -> Any:
    capsule = getattr(type(array), abi.EXCHANGE_ATTRIBUTE, None)
    if capsule is None:
        raise NotApplicable("publishes no table")
    return capsule


def _table(array: Array) -> Any:
    capsule = _capsule(array)
    try:
        address = abi.pointer_of(capsule, abi.EXCHANGE_NAME)
    except Exception:
        raise NotApplicable("publishes no capsule of that name") from None
    table: Any = abi.DLPackExchangeAPI.from_address(address)
    if table.major != 1:
        raise NotApplicable(f"its table has major version {table.major}")
    return table


def _function(array: Array, name: str) -> int:
    address = getattr(_table(array), name)
    if not address:
        raise NotApplicable(f"{name} is NULL")
    return int(address)


def export_through_table(array: Array) -> Export:
    """The table's export of an array, as a capsule; its exceptions pass."""
    out = ctypes.c_void_p()
    function = _FromPy(_function(array, "managed_tensor_from_py_object_no_sync"))
    status = function(array, ctypes.byref(out))
    if status != 0 or not out.value:
        raise RuntimeError(f"status {status} without an exception")
    return Export(abi.new_capsule(out.value, abi.VERSIONED, _release))


def _dropped(capsule: int) -> None:
    address = abi.address_in(capsule, abi.VERSIONED)
    if address is not None:
        raw: Any = abi.DLManagedTensorVersioned.from_address(address)
        if raw.deleter:
            abi.Deleter(raw.deleter)(address)


_release = abi.Destructor(_dropped)


@check("producer.table", "DLPack 1.3, DLPackExchangeAPI: which functions must not be NULL")
def table(subject: Subject) -> Outcome:
    """The exchange table is a capsule on the type, and complete."""
    array = subject.array()
    capsule = _capsule(array)
    try:
        abi.pointer_of(capsule, abi.EXCHANGE_NAME)
    except Exception:
        return failed(f"the attribute is {capsule!r}, not a capsule dlpack_exchange_api")
    raw: Any = abi.DLPackExchangeAPI.from_address(abi.pointer_of(capsule, abi.EXCHANGE_NAME))
    if raw.major != 1:
        return warned(f"major version {raw.major}")
    needed = [name for name, _ in raw._fields_ if name.startswith(("managed", "current"))]
    missing = [name for name in needed if not getattr(raw, name)]
    if missing:
        return failed(f"NULL: {', '.join(missing)}")
    return passed(f"version {raw.major}.{raw.minor}")


@check("producer.table-agrees", "DLPack 1.3, DLPackManagedTensorFromPyObjectNoSync")
def table_agrees(subject: Subject) -> Outcome:
    """The table exports what __dlpack__ exports."""
    array = subject.array()
    function, method = export_through_table(array), best(array)
    fields = ["pointer", "dtype", "device", "shape", "strides"]
    if method.versioned:
        fields.append("flags")
    return _compare(function, method, fields)


def _compare(function: Export, method: Export, fields: list[str]) -> Outcome:
    for name in fields:
        one, other = getattr(function, name), getattr(method, name)
        if one != other:
            return failed(f"{name}: {one} by the table, {other} by __dlpack__")
    return passed()


@check("producer.table-borrow", "DLPack 1.3, DLPackDLTensorFromPyObjectNoSync")
def table_borrow(subject: Subject) -> Outcome:
    """The table's borrowed descriptor is that of __dlpack__."""
    array = subject.array()
    tensor = abi.DLTensor()
    borrow = _Borrow(_function(array, "dltensor_from_py_object_no_sync"))
    if borrow(array, ctypes.byref(tensor)) != 0:
        return failed("an error without an exception")
    raw: Any = abi.DLManagedTensorVersioned(1, 3, tensor=tensor)
    borrowed = Export(abi.new_capsule(ctypes.addressof(raw), abi.VERSIONED))
    return _compare(borrowed, best(array), ["pointer", "dtype", "device", "shape", "strides"])


@check(
    "producer.table-refusal",
    "DLPack 1.3, DLPackManagedTensorFromPyObjectNoSync: BufferError if possible",
)
def table_refusal(subject: Subject) -> Outcome:
    """The table refuses what __dlpack__ refuses."""
    _table(subject.array())
    if not list(subject.odd()):
        raise NotApplicable("the doctor knows no array of it that cannot be exported")
    found = exported_by(subject, export_through_table)
    return warned(f"exports {', '.join(found)}") if found else passed()


def _to_py(array: Array, made: Managed) -> Array:
    out = ctypes.c_void_p()
    to_py = _ToPy(_function(array, "managed_tensor_to_py_object_no_sync"))
    status = to_py(ctypes.addressof(made.raw), ctypes.byref(out))
    if status != 0 or not out.value:
        raise RuntimeError(f"status {status} without an exception")
    value = ctypes.cast(out, ctypes.py_object).value
    # The function gave a reference away, and ctypes took one more.
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(value))
    return value


@check(
    "producer.table-import",
    "DLPack 1.3, DLPackManagedTensorToPyObjectNoSync: takes the tensor over",
)
def table_import(subject: Subject) -> Outcome:
    """The table makes an array of a tensor, over the same memory, and releases it once."""
    made = Managed()
    array = _to_py(subject.array(), made)
    pointer, values = subject.pointer(array), subject.values(array)
    if values != made.values:
        return failed(f"holds {values}, not {made.values}")
    early = made.releases
    del array
    memory.settle(lambda: made.releases > 0)
    if early or made.releases != 1:
        return failed(f"released {made.releases} times, {early} of them early")
    return passed() if pointer == made.pointer else warned("the numbers are copied")


@check("producer.table-major", "DLPack 1.3, DLPackVersion: no other field may be read then")
def table_major(subject: Subject) -> Outcome:
    """The table refuses a tensor of another major version."""
    example = subject.array()
    _function(example, "managed_tensor_to_py_object_no_sync")
    made = Managed(version=(2, 0))
    try:
        array = _to_py(example, made)
    except Exception as error:
        return passed(describe(error))
    del array
    return failed("a tensor of version 2.0 is read as if it were 1.x")


@check(
    "producer.table-stream", "DLPack 1.3, DLPackCurrentWorkStream: sets the stream, NULL for a CPU"
)
def table_stream(subject: Subject) -> Outcome:
    """The table's stream of the CPU is NULL."""
    array = subject.array()
    out = ctypes.c_void_p(UNTOUCHED)
    stream = _Stream(_function(array, "current_work_stream"))
    status = stream(abi.CPU, 0, ctypes.byref(out))
    if status != 0:
        return failed(f"status {status}")
    if out.value == UNTOUCHED:
        return failed("success is reported, but nothing is written")
    return passed() if not out.value else warned(f"a stream, {out.value:#x}")


@check("producer.table-allocator", "DLPack 1.3, DLPackManagedTensorAllocator: must not be NULL")
def table_allocator(subject: Subject) -> Outcome:
    """The table makes memory for a shape and an element type."""
    array = subject.array()
    prototype, out = Managed((2, 3)), ctypes.c_void_p()
    said: list[str] = []

    def note(_context: int, kind: bytes, message: bytes) -> None:
        said.append(f"{kind.decode()}: {message.decode()[:80]}")

    allocate = _Allocate(_function(array, "managed_tensor_allocator"))
    try:
        status = allocate(
            ctypes.byref(prototype.raw.tensor), ctypes.byref(out), None, _SetError(note)
        )
    except Exception as error:
        return warned(f"refused by an exception rather than SetError: {describe(error)}")
    if status != 0 or not out.value:
        return warned(f"refused: {said[0]}") if said else failed(f"status {status}, no SetError")
    made = Export(abi.new_capsule(out.value, abi.VERSIONED, _release))
    found = (made.shape, made.dtype, made.device)
    wanted = ((2, 3), (2, 32, 1), (abi.CPU, 0))
    return passed() if found == wanted else failed(f"{found}, not {wanted}")
