"""A producer and a consumer without a fault, made of ctypes, for faults to be planted in.

Tests import this; it holds none. Every fault is a subclass that changes one method.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dlpack_doctor import abi, elements
from dlpack_doctor.export import Export, drop_capsules

ALIGNMENT = 64
_living = {}


def _delete(address):
    held = _living.pop(address, None)
    if held is not None:
        held.array.deleted(held)


DELETER = abi.Deleter(_delete)


def _destroy(capsule):
    for name in abi.STRUCTS:
        address = abi.address_in(capsule, name)
        if address is not None and address in _living:
            _living[address].array.dropped(_living[address])


IN_PYTHON = abi.Destructor(_destroy)
"""A destructor that loses an exception in flight, as each does that is Python code."""
# Some faults keep capsules to the end of the process, which would call functions freed before them.
for _function in (DELETER, IN_PYTHON):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_function))


def _kept_exception():
    """The same destructor, called by C code that keeps an exception in flight meanwhile."""
    compiler = shutil.which("cc")
    if compiler is None:
        return IN_PYTHON
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "shield.c"), Path(folder, "shield.so")
        source.write_text(SHIELD)
        options = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
        subprocess.run([compiler, "-shared", "-fPIC", *options, "-o", library, source], check=True)
        shield = ctypes.PyDLL(str(library))
    ctypes.c_void_p.in_dll(shield, "in_python").value = abi.address_of(IN_PYTHON)
    return shield.destroy


SHIELD = """
void PyErr_Fetch(void **, void **, void **);
void PyErr_Restore(void *, void *, void *);
void (*in_python)(void *);
void destroy(void *capsule) {
    void *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    in_python(capsule);
    PyErr_Restore(type, value, traceback);
}
"""
DESTRUCTOR = _kept_exception()


class Exported:
    """One export: its descriptor, and what it keeps alive."""

    def __init__(self, array, memory, raw):
        self.array, self.memory, self.raw = array, memory, raw


class Memory:
    """A row of numbers, aligned."""

    def __init__(self, data, skew=0):
        self.room = (ctypes.c_char * (len(data) + 2 * ALIGNMENT))()
        self.address = -(-ctypes.addressof(self.room) // ALIGNMENT) * ALIGNMENT + skew
        self.size = len(data)
        ctypes.memmove(self.address, data, len(data))

    def poison(self):
        ctypes.memset(self.address, 0x77, self.size)


class Array:
    """An array that does everything as the standard says."""

    skew = 0
    flags = 0

    def __init__(self, shape=(2, 3), dtype="float32"):
        self.shape, self.dtype = shape, dtype
        count = 1
        for extent in shape:
            count *= extent
        self.memory = Memory(elements.packed(dtype, count), self.skew)

    def tolist(self):
        strides = elements.row_major(self.shape)
        return elements.read(self.memory.address, self.dtype, self.shape, strides)

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if stream is not None or dl_device not in (None, (1, 0)):
            raise BufferError("host memory only")
        versioned = max_version is not None and max_version[0] >= 1
        return self.export_as(versioned, self.wants_copy(copy, versioned))

    def wants_copy(self, copy, versioned):
        return copy is True

    def export_as(self, versioned, copy=False):
        memory = self.memory
        if copy:
            memory = Memory(ctypes.string_at(memory.address, memory.size), self.skew)
        ndim = len(self.shape)
        numbers = ctypes.c_int64 * max(ndim, 1)
        tensor = abi.DLTensor(
            memory.address if memory.size else None,
            1,
            0,
            ndim,
            *elements.DTYPES[self.dtype],
            numbers(*self.shape),
            numbers(*elements.row_major(self.shape)),
            0,
        )
        delete = abi.address_of(DELETER)
        if versioned:
            flags = self.flags | (abi.IS_COPIED if copy else 0)
            raw = abi.DLManagedTensorVersioned(1, 3, None, delete, flags, tensor)
        else:
            raw = abi.DLManagedTensor(tensor, None, delete)
        self.describe(raw, versioned)
        held = Exported(self, memory, raw)
        _living[ctypes.addressof(raw)] = held
        return self.wrap(held, abi.VERSIONED if versioned else abi.LEGACY)

    def describe(self, raw, versioned):
        """Where a descriptor is made to lie."""

    def wrap(self, held, name):
        return abi.new_capsule(ctypes.addressof(held.raw), name, DESTRUCTOR)

    def dropped(self, held):
        """What the destructor of an unconsumed capsule does."""
        if held.raw.deleter:
            abi.Deleter(held.raw.deleter)(ctypes.addressof(held.raw))

    def deleted(self, held):
        """Additional work of the deleter."""


class Taken:
    """An array over a producer's memory."""

    def __init__(self, export, take):
        self.shape = export.shape
        self.dtype = elements.name_of(export.dtype)
        self.strides = export.strides or elements.row_major(export.shape)
        self.pointer = export.pointer
        self.offset = export.tensor.byte_offset
        self.taken = take(export)

    def tolist(self):
        if 0 in self.shape:
            return []
        return elements.read(self.pointer, self.dtype, self.shape, self.strides)

    def __del__(self):
        if hasattr(self, "taken"):
            self.taken.release()


def seen(capsule):
    """The export in a capsule, which only the consumer keeps alive."""
    export = Export(capsule)
    drop_capsules()
    return export


class Consumer:
    """A `from_dlpack` that does everything as the standard says."""

    def __call__(self, x):
        export = seen(self.ask(x))
        self.check(export)
        return self.make(export)

    def make(self, export):
        return Taken(export, self.take)

    def ask(self, x):
        try:
            return x.__dlpack__(max_version=(1, 3))
        except TypeError:
            return x.__dlpack__()

    def check(self, export):
        if export.version and export.version[0] != 1:
            raise BufferError(f"version {export.version}")
        if export.device != (1, 0):
            raise BufferError(f"device {export.device}")
        if export.dtype not in elements.NAMES:
            raise BufferError(f"element type {export.dtype}")

    def take(self, export):
        return export.take()
