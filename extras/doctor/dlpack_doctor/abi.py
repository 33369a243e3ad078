"""DLPack's structs and the C API of capsules, for ctypes.

What the fields should say does not belong here (see `producer`, `consumer`).
Invariant: the structs are laid out as in DLPack 1.3.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

LEGACY, VERSIONED = b"dltensor", b"dltensor_versioned"
"""The names of capsules that are not consumed."""
USED = {LEGACY: b"used_dltensor", VERSIONED: b"used_dltensor_versioned"}
EXCHANGE_ATTRIBUTE, EXCHANGE_NAME = "__dlpack_c_exchange_api__", b"dlpack_exchange_api"
READ_ONLY, IS_COPIED, SUBBYTE_PADDED = 1, 2, 4
CPU, CUDA = 1, 2
COMPLEX = 5
"""The code of complex elements."""
HOST_DEVICES = (1, 3, 11, 13)
"""Device types whose memory is read through an ordinary pointer."""

_Numbers = ctypes.POINTER(ctypes.c_int64)


class DLTensor(ctypes.Structure):
    """A tensor; `device` and `dtype` are flattened into their fields."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", _Numbers),
        ("strides", _Numbers),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    """What a capsule named `dltensor` holds."""

    _fields_ = (
        ("tensor", DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class DLManagedTensorVersioned(ctypes.Structure):
    """What a capsule named `dltensor_versioned` holds."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


class DLPackExchangeAPI(ctypes.Structure):
    """What a capsule named `dlpack_exchange_api` holds."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("prev_api", ctypes.c_void_p),
        ("managed_tensor_allocator", ctypes.c_void_p),
        ("managed_tensor_from_py_object_no_sync", ctypes.c_void_p),
        ("managed_tensor_to_py_object_no_sync", ctypes.c_void_p),
        ("dltensor_from_py_object_no_sync", ctypes.c_void_p),
        ("current_work_stream", ctypes.c_void_p),
    )


STRUCTS: dict[bytes, type[ctypes.Structure]] = {
    LEGACY: DLManagedTensor,
    VERSIONED: DLManagedTensorVersioned,
}

Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
"""Called without the GIL, which it acquires itself."""
Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def _api(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_name = _api("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
_set_name = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_get_destructor = _api("PyCapsule_GetDestructor", ctypes.c_void_p, ctypes.py_object)
# A destructor gets a capsule without references, so it must not become a Python object.
_is_valid_at = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer_at = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

# A capsule only points to its name, so names are kept for ever.
_names: dict[bytes, ctypes.c_char_p] = {}


def _kept(name: bytes) -> ctypes.c_char_p:
    return _names.setdefault(name, ctypes.c_char_p(name))


def new_capsule(address: int, name: bytes | None, destructor: Any = None) -> Any:
    """A capsule of any name, optionally with a destructor."""
    text = None if name is None else _kept(name)
    return _new(address, text, ctypes.cast(destructor, ctypes.c_void_p) if destructor else None)


def name_of(capsule: Any) -> bytes | None:
    """The name of a capsule; a ValueError if it is none."""
    name: bytes | None = _name(capsule)
    return name


def pointer_of(capsule: Any, name: bytes) -> int:
    """What a capsule of that name points to."""
    return int(_pointer(capsule, name))


def rename(capsule: Any, name: bytes) -> None:
    """Give a capsule another name, as a consumer does."""
    _set_name(capsule, _kept(name))


def has_destructor(capsule: Any) -> bool:
    """Whether a capsule has a destructor."""
    return bool(_get_destructor(capsule))


def address_in(capsule: int, name: bytes) -> int | None:
    """In a destructor: what the capsule points to, if it still has that name."""
    return int(_pointer_at(capsule, name)) if _is_valid_at(capsule, name) else None


def address_of(function: Any) -> int:
    """The address of a C function that ctypes knows."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address
