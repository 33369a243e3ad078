"""The buffer protocol, borrowed by tensors in host memory, and its methods (PEP 688), which Python
code may replace."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import textwrap
import threading
import weakref
from unittest import mock

import numpy as np
import pytest

import dlbridge
from dlbridge import _native
from hostile import READ_ONLY, Managed, producer_of
from support import arange

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]


class TestExport:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_numpy_sees_the_same_memory(self, dtype):
        tensor = dlbridge.zeros((2, 3), dtype=dtype)
        seen = np.asarray(tensor)
        assert (seen.dtype, seen.shape, seen.ctypes.data) == (dtype, (2, 3), tensor.data_ptr)
        assert seen.dtype.num == np.dtype(dtype).num
        seen[1, 2] = 1
        assert np.from_dlpack(tensor)[1, 2] == 1

    def test_a_memoryview_tells_everything(self):
        tensor = dlbridge.from_dlpack(np.arange(24, dtype="int32").reshape(4, 6)[::-2, 1::2])
        view = memoryview(tensor)
        assert (view.shape, view.strides) == ((2, 3), (-48, 8))
        assert (view.format, view.itemsize, view.nbytes) == ("i", 4, 24)
        assert (view.readonly, view.c_contiguous, view.suboffsets) == (False, False, ())
        assert view.tolist() == np.from_dlpack(tensor).tolist()
        assert view.obj is tensor

    def test_bytes_are_those_of_the_elements(self):
        data = bytes(range(12))
        tensor = dlbridge.from_bytes(data, dtype="int16", shape=(2, 3))
        assert bytes(tensor) == data
        strided = dlbridge.from_dlpack(np.from_dlpack(tensor)[:, ::2])
        assert bytes(strided) == np.from_dlpack(tensor)[:, ::2].tobytes()

    def test_files_and_sockets_take_it(self, tmp_path):
        path = tmp_path / "numbers"
        with path.open("wb") as file:
            file.write(arange(4, dtype="uint8"))
        assert path.read_bytes() == bytes(range(4))
        tensor = dlbridge.zeros(4, dtype="uint8")
        with path.open("rb") as file:
            assert file.readinto(tensor) == 4
        assert bytes(tensor) == bytes(range(4))

    def test_readonly_memory_is_borrowed_readonly(self):
        tensor = dlbridge.from_dlpack(b"abcd")
        view = memoryview(tensor)
        assert view.readonly
        with pytest.raises(TypeError):
            view[0] = 1
        assert not np.asarray(tensor).flags.writeable
        with pytest.raises((BufferError, TypeError)):
            (ctypes.c_char * 4).from_buffer(tensor)

    def test_a_view_keeps_the_memory_alive(self):
        made = Managed()
        view = memoryview(dlbridge.from_dlpack(made.capsule()))
        gc.collect()
        assert (view.tolist(), made.releases) == ([0, 1, 2], 0)
        view.release()
        assert made.releases == 1

    @pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)])
    def test_little_or_nothing_works(self, shape):
        tensor = dlbridge.zeros(shape, dtype="float32")
        view = memoryview(tensor)
        assert (view.shape, view.ndim) == (shape, len(shape))
        assert np.asarray(tensor).shape == shape
        assert len(bytes(tensor)) == tensor.nbytes

    def test_empty_memory_without_an_address_has_one(self):
        tensor = dlbridge.from_dlpack(Managed(data=None, shape=[0, 3]).capsule())
        assert tensor.data_ptr == 0
        assert bytes(tensor) == b""
        assert np.asarray(tensor).shape == (0, 3)

    @pytest.mark.parametrize(
        ("dtype", "name"),
        [
            ((4, 16, 1), "bfloat16"),
            ((10, 8, 1), "float8_e4m3fn"),
            ((17, 4, 1), "float4_e2m1fn"),
            ((2, 32, 2), "float32x2"),
            ((99, 32, 1), "code99"),
            ((2, 128, 1), "float128"),
        ],
    )
    def test_a_dtype_without_a_format_is_a_buffer_error(self, dtype, name):
        tensor = dlbridge.from_dlpack(Managed(dtype=dtype, shape=[2]).capsule())
        with pytest.raises(BufferError, match=f"buffer: expected elements that have.*found {name}"):
            memoryview(tensor)
        with pytest.raises(BufferError, match="struct format"):
            tensor.__buffer__(0)

    @pytest.mark.parametrize(("device", "name"), [((2, 0), "cuda:0"), ((10, 1), "rocm:1")])
    def test_device_memory_is_a_buffer_error(self, device, name):
        tensor = dlbridge.from_dlpack(Managed(device=device).capsule())
        with pytest.raises(BufferError, match=f"expected host memory, found memory on {name}"):
            memoryview(tensor)

    @pytest.mark.parametrize("device", [(3, 0), (11, 0)])
    def test_pinned_memory_is_host_memory(self, device):
        assert memoryview(dlbridge.from_dlpack(Managed(device=device).capsule())).tolist() == [
            0,
            1,
            2,
        ]

    def test_the_method_checks_what_is_asked_for(self):
        tensor = dlbridge.from_dlpack(b"abcd")
        assert tensor.__buffer__(0).tolist() == list(b"abcd")
        with pytest.raises(BufferError, match="expected writable memory, found read-only memory"):
            tensor.__buffer__(1)

    def test_the_method_takes_flags_alone(self):
        tensor = dlbridge.zeros(3)
        for wrong in ((), (0, 0), ("0",), (None,), (2**80,)):
            with pytest.raises((TypeError, OverflowError)):
                tensor.__buffer__(*wrong)
        with pytest.raises(TypeError):
            dlbridge.Tensor.__buffer__(3, 0)
        assert "memory" in dlbridge.Tensor.__buffer__.__doc__

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="PEP 688 is of Python 3.12")
    def test_it_is_a_buffer_by_its_type(self):
        from collections.abc import Buffer

        assert isinstance(dlbridge.zeros(3), Buffer)

    def test_null_is_no_place_for_a_buffer(self):
        get = ctypes.pythonapi.PyObject_GetBuffer
        get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
        tensor = dlbridge.zeros(3)
        before = sys.getrefcount(tensor)
        with pytest.raises(BufferError, match="buffer: expected a place to write it to, found"):
            get(tensor, None, 0)
        assert sys.getrefcount(tensor) == before

    def test_a_buffer_goes_out_and_comes_in(self):
        tensor = arange(6, dtype="float64")
        again = dlbridge.from_dlpack(memoryview(tensor))
        assert again.data_ptr == tensor.data_ptr
        before = sys.getrefcount(tensor)
        for _ in range(1000):
            memoryview(tensor)
        assert sys.getrefcount(tensor) == before

    def test_a_broadcast_tensor_is_borrowed_as_it_is(self):
        source = np.broadcast_to(np.arange(3, dtype="int8"), (2, 3))
        view = memoryview(dlbridge.from_dlpack(source))
        assert (view.strides, view.nbytes) == ((0, 1), 6)
        assert view.tolist() == [[0, 1, 2], [0, 1, 2]]
        with pytest.raises(BufferError, match="expected row-major contiguous memory"):
            Raw(dlbridge.from_dlpack(source), Raw.ND)


class Raw(ctypes.Structure):
    """A `Py_buffer`, got with any flags."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )

    SIMPLE, WRITABLE, FORMAT, ND, STRIDES = 0, 1, 4, 8, 0x18
    C, F, ANY, INDIRECT = 0x38, 0x58, 0x98, 0x118

    def __init__(self, source, flags):
        super().__init__()
        get = ctypes.pythonapi.PyObject_GetBuffer
        get.argtypes = [ctypes.py_object, ctypes.POINTER(Raw), ctypes.c_int]
        try:
            get(source, self, flags)
        except BufferError:
            assert self.obj is None
            raise

    def release(self):
        release = ctypes.pythonapi.PyBuffer_Release
        release.argtypes, release.restype = [ctypes.POINTER(Raw)], None
        release(self)
        assert self.obj is None


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python itself calls __buffer__")
def test_a_class_that_fails_leaves_no_object_in_the_buffer():
    view = Raw(np.zeros(1), Raw.SIMPLE)
    view.release()
    view.obj = 1
    get = ctypes.pythonapi.PyObject_GetBuffer
    with pytest.raises(ZeroDivisionError):
        get(_native._Calls(lambda: 1 // 0), view, Raw.SIMPLE)
    assert view.obj is None


def layouts():
    base = np.arange(24, dtype="float32").reshape(4, 6)
    return {
        "row-major": base,
        "column-major": base.T,
        "gaps": base[:, ::2],
        "backwards": base[::-1],
        "0-d": base[1, 2],
        "one axis": base[0],
        "empty": base[:0, ::2],
    }


FLAGS = [
    kind | extra
    for kind in (Raw.SIMPLE, Raw.ND, Raw.STRIDES, Raw.C, Raw.F, Raw.ANY, Raw.INDIRECT)
    for extra in (0, Raw.WRITABLE, Raw.FORMAT, Raw.WRITABLE | Raw.FORMAT)
]


@pytest.mark.parametrize("flags", FLAGS, ids=hex)
@pytest.mark.parametrize("layout", layouts())
def test_every_request_is_answered_as_numpy_answers_it(layout, flags):
    source = np.array(layouts()[layout], copy=None)
    if layout == "0-d":
        source = np.array(8, dtype="float32")
    tensor = dlbridge.from_dlpack(source)
    try:
        theirs = Raw(source, flags)
    except (BufferError, ValueError):
        theirs = None
    is_odd = flags & Raw.FORMAT and not flags & Raw.ND
    if theirs is None or is_odd:
        # NumPy exports a format without a shape, which a bytes-like buffer cannot have.
        with pytest.raises(BufferError, match=r"buffer: expected .*, found"):
            Raw(tensor, flags)
    else:
        ours = Raw(tensor, flags)
        assert (ours.buf, ours.len, ours.itemsize) == (theirs.buf, theirs.len, theirs.itemsize)
        assert (ours.readonly, ours.format) == (theirs.readonly, theirs.format)
        for name in ("shape", "strides"):
            mine, other = getattr(ours, name), getattr(theirs, name)
            assert bool(mine) == bool(other) or not source.ndim
            if other and 0 not in source.shape:
                assert mine[: source.ndim] == other[: source.ndim]
        assert ours.suboffsets is None
        ours.release()
    if theirs is not None:
        theirs.release()


def test_a_readonly_producer_stays_readonly_through_a_buffer():
    made = Managed(flags=READ_ONLY)
    view = memoryview(dlbridge.from_dlpack(producer_of(made)))
    assert dlbridge.from_dlpack(view).readonly


PEP_688 = pytest.mark.skipif(sys.version_info < (3, 12), reason="PEP 688 is of Python 3.12")


def image() -> object:
    example = pytest.importorskip("dlbridge_example", reason="the example is not installed")
    return example.Image(2, 3)


@PEP_688
def test_a_method_that_is_patched_and_put_back_works_as_before():
    """Of a user's class; `dlbridge.Tensor` cannot be patched."""
    made = image()
    kind, seen = type(made), []
    method = kind.__buffer__
    before = bytes(made)

    def counted(self, flags):
        seen.append(flags)
        return method(self, flags)

    with mock.patch.object(kind, "__buffer__", counted):
        assert bytes(made) == before
    assert seen
    # On a thread with little stack, where a recursion without end is found soon.
    found = []
    thread = threading.Thread(target=lambda: found.append(bytes(made)))
    thread.start()
    thread.join()
    assert found == [before]
    assert np.asarray(made).tobytes() == before


@PEP_688
def test_a_method_that_is_put_back_does_not_call_itself():
    """Buffer functions were set without their names in the class's dict: `memoryview` recursed
    until the stack ended once `__buffer__` was patched and put back, and a `__release_buffer__`
    of Python kept all memory."""
    program = """
        import threading
        import dlbridge_example
        made = dlbridge_example.Image(1, 1)
        kind = type(made)
        kind.__buffer__ = kind.__buffer__
        thread = threading.Thread(target=lambda: print(bytes(made)))
        thread.start()
        thread.join()
    """
    # Skips where the example is not installed.
    image()
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, f"{bytes(3)}\n"), ended.stderr[-2000:]


def array_and_image() -> tuple[np.ndarray, object]:
    example = pytest.importorskip("dlbridge_example", reason="the example is not installed")
    array = np.zeros((2, 3, 3), dtype="uint8")
    return array, example.Image.over_pixels(array)


@PEP_688
def test_a_release_method_of_python_leaks_nothing():
    array, made = array_and_image()
    kind, released, kept = type(made), [], weakref.ref(array)
    del array
    kind.__release_buffer__, before = (
        lambda self, view: released.append(view.nbytes),
        kind.__dict__.get("__release_buffer__"),
    )
    try:
        memoryview(made).release()
    finally:
        if before is None:
            del kind.__release_buffer__
        else:
            kind.__release_buffer__ = before
    assert released == [18]
    memoryview(made).release()
    assert kept() is not None
    del made
    gc.collect()
    assert kept() is None, "a buffer still keeps the memory"
