"""Cross-library tests of DLPack for array-api-tests: `from_dlpack` of a producer that is no array.

The producer is made of ctypes, so no second array library is needed, and every field of the
descriptor can be chosen. The file goes into `array_api_tests/` and runs as the others do.
"""

import ctypes
import gc
import itertools

import pytest

from . import _array_module as xp

READ_ONLY, IS_COPIED = 1, 2
VERSIONED = b"dltensor_versioned"


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    _fields_ = (
        ("tensor", DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


def _api(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


capsule_new = _api(
    "PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)
capsule_name = _api("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
capsule_pointer = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)

# A descriptor is never freed, so a second call of its deleter is counted and does no harm.
_exported = {}


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _deleter(address):
    _exported[address].released += 1


class Producer:
    """Exports the float32 numbers 0, 1, 2, ... through any layout."""

    def __init__(
        self,
        shape=(2, 3),
        strides=(3, 1),
        *,
        start=0,
        byte_offset=0,
        version=(1, 0),
        flags=0,
    ):
        self.shape, self.strides, self.start = shape, strides, start
        self.byte_offset, self.version, self.flags = byte_offset, version, flags
        # Aligned, because some libraries copy what is not.
        self.room = (ctypes.c_char * (4 * 64 + 64))()
        aligned = -(-ctypes.addressof(self.room) // 64) * 64
        self.memory = (ctypes.c_float * 64).from_address(aligned)
        self.memory[:] = range(64)
        self.calls, self.capsules, self.released = [], [], 0

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **keywords):
        self.calls.append(keywords)
        ndim = len(self.shape)
        numbers = ctypes.c_int64 * max(ndim, 1)
        at = ctypes.addressof(self.memory) + 4 * self.start - self.byte_offset
        shape, strides = numbers(*self.shape), numbers(*self.strides)
        tensor = DLTensor(at, 1, 0, ndim, 2, 32, 1, shape, strides, self.byte_offset)
        delete = ctypes.cast(_deleter, ctypes.c_void_p).value
        name = VERSIONED if keywords.get("max_version") else b"dltensor"
        if name == VERSIONED:
            raw = DLManagedTensorVersioned(*self.version, None, delete, self.flags, tensor)
        else:
            raw = DLManagedTensor(tensor, None, delete)
        self.raw = raw
        _exported[ctypes.addressof(raw)] = self
        self.capsules.append(capsule_new(ctypes.addressof(raw), name, None))
        return self.capsules[-1]

    def values(self):
        return [
            float(self.start + sum(i * step for i, step in zip(index, self.strides, strict=True)))
            for index in itertools.product(*map(range, self.shape))
        ]


def imported(producer, **kw):
    """The array, or the exception of a consumer that does not support the layout."""
    try:
        return xp.from_dlpack(producer, **kw)
    except (BufferError, RuntimeError, TypeError, ValueError) as exc:
        pytest.skip(f"not supported: {exc!r}")


def values_of(x):
    indices = itertools.product(*map(range, x.shape))
    return [float(x[index]) for index in indices] if x.ndim else [float(x)]


LAYOUTS = {
    "contiguous": Producer(),
    "0d": Producer((), ()),
    "transposed": Producer((3, 2), (1, 3)),
    "permuted": Producer((2, 3, 2), (1, 4, 2)),
    "gaps": Producer((2, 3), (8, 2)),
    "gaps-byte-offset": Producer((2, 3), (8, 2), start=16, byte_offset=64),
    "byte-offset": Producer(start=16, byte_offset=64),
    "reversed": Producer((2, 3), (3, -1), start=2),
    "both-reversed": Producer((2, 3), (-3, -1), start=5),
    "flipped-transposed": Producer((3, 2), (-1, 3), start=2),
    "broadcast": Producer((2, 3), (0, 1)),
    "size-one": Producer((2, 1, 3), (3, 77, 1)),
    "nine-axes": Producer((2, *[1] * 7, 3), (3, *[3] * 7, 1)),
    "33-axes": Producer((2, *[1] * 31, 3), (3, *[3] * 31, 1)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values(layout):
    producer = LAYOUTS[layout]
    x = imported(producer)
    assert tuple(x.shape) == producer.shape
    assert values_of(x) == producer.values()


def test_released_once():
    producer = Producer()
    x = imported(producer)
    assert producer.released == 0 or values_of(x) == producer.values()
    del x
    gc.collect()
    assert producer.released == len(producer.capsules)


def test_capsule_is_renamed():
    producer = Producer()
    x = imported(producer)
    assert capsule_name(producer.capsules[-1]).startswith(b"used_dltensor")
    del x


def test_keywords():
    producer = Producer()
    for kw in ({}, {"copy": False}, {"copy": True}, {"device": imported(producer).device}):
        try:
            xp.from_dlpack(producer, **kw)
        except (BufferError, ValueError):
            continue
    used = {name for call in producer.calls for name in call}
    assert used <= {"stream", "max_version", "dl_device", "copy"}
    assert all(call.get("stream") in (None, -1) for call in producer.calls)


def test_copy_false_never_copies():
    class OnlyCopies(Producer):
        def __dlpack__(self, *, copy=None, **keywords):
            if copy is False:
                raise BufferError("a copy is needed")
            return super().__dlpack__(**keywords)

    with pytest.raises((BufferError, ValueError)):
        xp.from_dlpack(OnlyCopies(flags=IS_COPIED), copy=False)


def test_copy_true_is_passed_on_or_made():
    producer = Producer()
    x = imported(producer, copy=True)
    if any(call.get("copy") for call in producer.calls):
        return  # The producer's answer is its own affair.
    producer.memory[0] = 99.0
    assert values_of(x)[0] == 0.0


def test_buffer_error_propagates():
    class Refuses(Producer):
        def __dlpack__(self, **keywords):
            raise BufferError("refused")

    with pytest.raises(BufferError):
        xp.from_dlpack(Refuses())


def test_a_refusal_is_an_exception():
    try:
        x = xp.from_dlpack(Producer((2, 3), (3, -1), start=2))
    except Exception:
        return
    assert x is not None


def test_newer_minor_is_imported():
    producer = Producer(version=(1, 99))
    assert values_of(xp.from_dlpack(producer)) == producer.values()


def test_other_major_is_refused():
    producer = Producer(version=(2, 0))
    try:
        xp.from_dlpack(producer)
    except Exception:
        return
    assert not any("max_version" in call for call in producer.calls)


def test_exported_strides():
    """The strides of a flipped and transposed array are small numbers with a sign."""
    x = xp.reshape(xp.arange(12, dtype=xp.float32), (3, 4))
    x = xp.permute_dims(xp.flip(x, axis=1), (1, 0))
    if x.__dlpack_device__()[0] != 1:
        pytest.skip("not host memory")
    capsule = x.__dlpack__(max_version=(1, 0))
    name = capsule_name(capsule)
    kind = DLManagedTensorVersioned if name == VERSIONED else DLManagedTensor
    tensor = kind.from_address(capsule_pointer(capsule, name)).tensor
    at, strides = tensor.data + tensor.byte_offset, tensor.strides[: tensor.ndim]
    assert all(abs(step) <= 12 for step in strides)
    for i, j in itertools.product(range(4), range(3)):
        address = at + 4 * (i * strides[0] + j * strides[1])
        assert ctypes.c_float.from_address(address).value == float(x[i, j])
