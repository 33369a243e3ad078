"""The buffer protocol, taken from objects without DLPack, and from arrays of JAX on the host."""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import mmap
import subprocess
import sys
import threading
import weakref
from unittest import mock

import numpy as np
import pytest

import dlbridge
from hostile import Producer, read
from support import fill


def address_of(source) -> int:
    return np.frombuffer(source, dtype="uint8").ctypes.data


def rename(capsule, name: bytes) -> None:
    function = ctypes.pythonapi.PyCapsule_SetName
    function.argtypes = [ctypes.py_object, ctypes.c_char_p]
    names.append(name)
    function(capsule, names[-1])


names: list[bytes] = []
"""Names of capsules, which only point to them."""


def values(tensor):
    return np.from_dlpack(tensor).tolist()


class TestImport:
    @pytest.mark.parametrize("wrap", [lambda source: source, memoryview])
    def test_no_python_code_can_release_the_buffer_of_a_tensor(self, wrap):
        """Nor resize its bytearray, until the tensor is gone."""
        source = bytearray(b"abcdef")
        given = wrap(source)
        tensor = dlbridge.from_dlpack(given)
        for found in gc.get_objects():
            with contextlib.suppress(BufferError, ValueError):
                if isinstance(found, memoryview) and found.obj is source:
                    found.release()
        with pytest.raises(BufferError):
            source.extend(b"x" * 10_000)
        assert np.from_dlpack(tensor).tobytes() == b"abcdef"
        del tensor, found  # the last object found may be the tensor
        if isinstance(given, memoryview):
            given.release()
        source.extend(b"x" * 10_000)

    def test_a_buffer_that_is_refused_is_released(self):
        source = bytearray(8)
        view = memoryview(source).cast("P")
        with pytest.raises(BufferError, match="format"):
            dlbridge.from_dlpack(view)
        view.release()
        source.extend(b"x")

    @pytest.mark.parametrize(
        ("source", "dtype", "readonly"),
        [
            (b"abc", "uint8", True),
            (bytearray(b"abc"), "uint8", False),
            (memoryview(b"abc"), "uint8", True),
            (array.array("d", [1, 2, 3]), "float64", False),
            (array.array("h", [1, 2, 3]), "int16", False),
            (array.array("L", [1, 2, 3]), "uint64", False),
            ((ctypes.c_float * 3)(1, 2, 3), "float32", False),
            ((ctypes.c_long * 3)(1, 2, 3), "int64", False),
            ((ctypes.c_bool * 3)(1, 0, 1), "bool", False),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_the_memory_is_shared(self, source, dtype, readonly):
        tensor = dlbridge.from_dlpack(source)
        assert (tensor.shape, tensor.strides) == ((3,), (1,))
        assert (tensor.dtype, tensor.device, tensor.readonly) == (dtype, "cpu", readonly)
        assert tensor.data_ptr == address_of(source)
        assert values(tensor) == list(source)
        description = dlbridge.inspect(source)
        assert (description.protocol, description.version) == ("buffer protocol", None)
        if not readonly:
            fill(tensor, 1)
            assert list(source) == [1, 1, 1]

    def test_a_mapped_file_is_memory_like_any_other(self, tmp_path):
        path = tmp_path / "numbers"
        path.write_bytes(bytes(range(64)))
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            tensor = dlbridge.from_dlpack(mapped)
            assert (tensor.shape, tensor.readonly) == ((64,), False)
            with pytest.raises(BufferError):
                mapped.close()
            fill(tensor, 7)
            del tensor
            mapped.flush()
        assert path.read_bytes() == b"\7" * 64
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            assert dlbridge.from_dlpack(mapped).readonly
            mapped.close()

    def test_views_keep_their_shape_and_strides(self):
        source = bytearray(range(24))
        shaped = memoryview(source).cast("B").cast("h", [3, 4])
        tensor = dlbridge.from_dlpack(shaped)
        assert (tensor.shape, tensor.strides, tensor.dtype) == ((3, 4), (4, 1), "int16")
        assert values(tensor) == shaped.tolist()
        backwards = memoryview(source)[::-3]
        tensor = dlbridge.from_dlpack(backwards)
        assert (tensor.shape, tensor.strides) == ((8,), (-3,))
        assert values(tensor) == list(backwards)
        scalar = memoryview(source)[:4].cast("i", [])
        assert dlbridge.from_dlpack(scalar).shape == ()

    def test_a_class_with_a_buffer_is_first_asked_by_dlpack(self):
        """However it answers: by a method, by code, by an attribute of the object."""
        numbers = np.arange(3.0)

        def answer(self, **keywords):
            return numbers.__dlpack__(**keywords)

        def found(self, name):
            if name == "__dlpack__":
                return numbers.__dlpack__
            raise AttributeError(name)

        base = ctypes.c_ubyte * 3
        for bases, body in (
            ((bytearray,), {"__dlpack__": answer}),
            ((bytearray,), {"__dlpack__": answer, "__slots__": ()}),
            ((base,), {"__dlpack__": answer}),
            ((bytearray,), {"__getattr__": found}),
            ((bytes,), {"__getattr__": found, "__slots__": ()}),
            ((base,), {"__getattr__": found}),
        ):
            source = type("Own", bases, body)(*(1, 2, 3) if bases == (base,) else (b"abc",))
            assert dlbridge.from_dlpack(source).data_ptr == numbers.ctypes.data, body
        source = type("Plain", (bytearray,), {})(b"abc")
        assert dlbridge.from_dlpack(source).data_ptr == address_of(source)
        source.__dlpack__ = numbers.__dlpack__
        assert dlbridge.from_dlpack(source).data_ptr == numbers.ctypes.data

    def test_types_of_ctypes_are_freed(self):
        kinds = []
        for length in range(1, 500):
            kind = type("Short", (ctypes.Array,), {"_type_": ctypes.c_float, "_length_": length})
            assert dlbridge.from_dlpack(kind()).shape == (length,)
            kinds.append(weakref.ref(kind))
            del kind
        gc.collect()
        assert [kind for kind in kinds if kind() is not None] == []

    def test_a_ctypes_array_of_arrays_has_two_axes(self):
        source = (ctypes.c_int16 * 3 * 2)((1, 2, 3), (4, 5, 6))
        tensor = dlbridge.from_dlpack(source)
        assert (tensor.shape, tensor.dtype) == ((2, 3), "int16")
        assert values(tensor) == [[1, 2, 3], [4, 5, 6]]

    def test_a_numpy_scalar_is_a_tensor_of_ndim_0(self):
        tensor = dlbridge.from_dlpack(np.float32(2.5))
        assert (tensor.shape, tensor.dtype, tensor.readonly) == ((), "float32", True)
        assert values(tensor) == 2.5

    @pytest.mark.parametrize("source", [b"", bytearray(), array.array("i"), (ctypes.c_int * 0)()])
    def test_an_empty_buffer_is_an_empty_tensor(self, source):
        tensor = dlbridge.from_dlpack(source)
        assert (tensor.shape, tensor.nbytes) == ((0,), 0)
        assert values(tensor) == []

    @pytest.mark.parametrize("dtype", ["complex64", "complex128", "float16", "bool", "uint64"])
    def test_formats_of_numpy_are_understood(self, dtype):
        source = np.arange(6).astype(dtype).reshape(2, 3)
        tensor = dlbridge.from_dlpack(memoryview(source))
        assert (tensor.dtype, tensor.shape) == (dtype, (2, 3))
        assert np.array_equal(np.from_dlpack(tensor), source)

    @pytest.mark.parametrize(
        ("source", "found"),
        [
            (
                memoryview(np.zeros(2, ">f4")),
                'format: expected this machine.*, found ">f" of 4 bytes',
            ),
            (memoryview(bytes(16)).cast("P"), 'format: expected one number, found "P" of 8 bytes'),
            (memoryview(np.zeros(2, "S3")), 'format: expected .*, found "3s"'),
            (memoryview(np.zeros(2, "i4,f4")), 'format: expected .*, found "T{'),
            (memoryview(np.zeros(2, "O")), 'format: expected .*, found "O"'),
            (memoryview(np.zeros(2, "longdouble")), 'format: expected .*, found "g"'),
            ((ctypes.c_char_p * 2)(), "format: expected .*, found"),
            ((ctypes.c_void_p * 2)(), "format: expected .*, found"),
            ((ctypes.c_int32.__ctype_be__ * 2)(), "format: expected .*, found"),
            (np.ndarray((3,), "f4", bytes(24), 0, (5,)).view(), "stride"),
        ],
    )
    def test_what_is_no_number_of_this_machine_is_refused(self, source, found):
        with pytest.raises(BufferError, match=found.replace("{", "[{]")):
            dlbridge.from_dlpack(source)

    @pytest.mark.parametrize("ndim", [0, 1, 63, 64, 65, 1000])
    def test_ndim_at_the_limit(self, ndim):
        kind = ctypes.c_float
        for _ in range(ndim):
            kind = kind * 1
        if ndim > 64:
            with pytest.raises(BufferError, match=f"expected 64 axes or fewer, found {ndim}"):
                dlbridge.from_dlpack(kind())
            return
        tensor = dlbridge.from_dlpack(memoryview(np.full((1,) * ndim, 3.0)))
        assert (len(tensor.shape), memoryview(tensor).ndim) == (ndim, ndim)
        assert np.from_dlpack(tensor).ravel().tolist() == [3]

    def test_strides_that_are_not_whole_elements_are_refused(self):
        class Odd:
            """Without DLPack, whose own refusal would come first."""

            __array_interface__ = np.ndarray((3,), "f4", bytes(24), 0, (5,)).__array_interface__

        with pytest.raises(
            BufferError, match=r"strides: axis 0: expected a multiple of .* bytes, .*, found 5"
        ):
            dlbridge.from_dlpack(Odd())

    def test_a_released_view_says_so_itself(self):
        view = memoryview(b"abc")
        view.release()
        with pytest.raises(ValueError, match="released"):
            dlbridge.from_dlpack(view)

    def test_a_copy_is_other_memory(self):
        source = bytearray(b"abc")
        tensor = dlbridge.from_dlpack(source, copy=True)
        assert (tensor.readonly, values(tensor)) == (False, list(b"abc"))
        source += b"d"
        assert values(tensor) == list(b"abc")

    def test_another_device_is_refused(self):
        with pytest.raises(
            BufferError, match=r"expected cuda:0, found .*, and the producer refused"
        ):
            dlbridge.from_dlpack(b"abc", device="cuda:0")


class TestRelease:
    def test_the_buffer_is_held_and_released_once(self):
        source = bytearray(b"abc")
        before = sys.getrefcount(source)
        tensor = dlbridge.from_dlpack(source)
        again = np.from_dlpack(tensor)
        with pytest.raises(BufferError):
            source.append(1)
        del tensor
        with pytest.raises(BufferError):
            source.append(1)
        assert again.tolist() == list(b"abc")
        del again
        source.append(1)
        assert sys.getrefcount(source) == before

    def test_a_refused_buffer_is_released_at_once(self):
        source = bytearray(16)
        with memoryview(source).cast("P") as view, pytest.raises(BufferError, match="format"):
            dlbridge.from_dlpack(view)
        source.append(1)

    @pytest.mark.parametrize("framework", ["jax.numpy", "torch"])
    def test_a_consumer_may_release_it_without_the_lock(self, framework):
        module = pytest.importorskip(framework, reason=f"{framework} is not installed")
        source = bytearray(4096)
        for _ in range(100):
            array = module.from_dlpack(dlbridge.from_dlpack(source))
            del array
        gc.collect()
        source.append(1)

    def test_it_may_be_released_on_any_thread_without_the_lock(self):
        source = bytearray(64)
        # Python lets the lock go around calls of a CFUNCTYPE.
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

        def take_and_release():
            capsule = dlbridge.from_dlpack(source).__dlpack__(max_version=(1, 3))
            managed = read(capsule)
            rename(capsule, b"used_dltensor_versioned")
            kind(managed.deleter)(ctypes.addressof(managed))

        threads = [threading.Thread(target=take_and_release) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        source.append(1)

    def test_many_imports_leave_no_references(self):
        source = array.array("i", range(10))
        before = sys.getrefcount(source)
        for _ in range(1000):
            dlbridge.from_dlpack(source)
        assert sys.getrefcount(source) == before


class TestAfterDlpack:
    @pytest.mark.parametrize("knows", [("stream", "max_version"), ("stream",), ()])
    def test_a_buffer_replaces_a_legacy_descriptor_that_cannot_be_exported(self, knows):
        """NumPy before 2.1 refuses to give read-only arrays to DLPack."""
        calls = []

        class Old(np.ndarray):
            def __dlpack__(self, **keywords):
                calls.append(keywords)
                for name in keywords:
                    if name not in knows:
                        words = f"__dlpack__() got an unexpected keyword argument {name!r}"
                        raise TypeError(words)
                raise BufferError("Cannot export readonly array")

        source = np.arange(3.0).view(Old)
        source.flags.writeable = False
        tensor = dlbridge.from_dlpack(source)
        assert (tensor.readonly, tensor.data_ptr) == (True, source.ctypes.data)
        asked = {"max_version": dlbridge.DLPACK_VERSION}
        assert calls == ([asked] if "max_version" in knows else [asked, {}])
        assert dlbridge.inspect(source).protocol == "buffer protocol"

    def test_the_refusal_comes_out_where_there_is_no_buffer(self):
        refusal = BufferError("not now")

        def fail(**_keywords):
            raise refusal

        with pytest.raises(BufferError) as raised:
            dlbridge.from_dlpack(Producer(fail))
        assert raised.value is refusal

    @pytest.mark.parametrize("failure", [RuntimeError("broken"), TypeError("no"), MemoryError()])
    def test_another_failure_is_no_reason_to_look_further(self, failure):
        class Broken(bytearray):
            def __dlpack__(self, **_keywords):
                raise failure

        with pytest.raises(type(failure)) as raised:
            dlbridge.from_dlpack(Broken(b"abc"))
        assert raised.value is failure


def test_a_tensor_at_exit_is_harmless():
    code = (
        "import dlbridge, atexit, sys\n"
        "kept = bytearray(8)\n"
        "sys.kept = [dlbridge.from_dlpack(kept), memoryview(dlbridge.zeros(3))]\n"
        "sys.kept.append(sys.kept)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def methods():
    """The names of the functions in Python that run."""
    names = []

    def note(frame, event, _):
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    yield names
    sys.setprofile(None)


def load():
    return pytest.importorskip("jax", reason="jax is not installed")


def host(array):
    jax = load()
    return jax.device_put(array, jax.devices("cpu")[0])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "float16", "float32"])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (0, 3), (2, 3), (2, 3, 4)])
def test_the_pages_of_an_array_are_shared_without_a_call(dtype, shape, methods):
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    array = host(numbers)
    dlbridge.from_dlpack(array)
    methods.clear()
    tensor = dlbridge.from_dlpack(array)
    assert "__dlpack__" not in methods
    assert (tensor.dtype, tensor.shape, tensor.device) == (dtype, shape, "cpu")
    assert tensor.readonly and tensor.tolist() == numbers.tolist()
    if tensor.size:
        assert tensor.data_ptr == array.unsafe_buffer_pointer()


def test_elements_that_a_buffer_cannot_describe_go_by_the_method(methods):
    array = host(np.ones(3)).astype("bfloat16")
    methods.clear()
    tensor = dlbridge.from_dlpack(array)
    assert "__dlpack__" in methods
    assert (tensor.dtype, tensor.tolist()) == ("bfloat16", [1, 1, 1])


def test_a_deleted_array_is_refused():
    array = host(np.ones(3))
    dlbridge.from_dlpack(array)
    array.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        dlbridge.from_dlpack(array)


def test_memory_that_is_imported_outlives_a_deleted_and_a_donated_array():
    numbers = np.arange(1000, dtype="float32")
    array = host(numbers) + 0
    tensor = dlbridge.from_dlpack(array)
    array.delete()
    assert [float(sum(host(numbers))) for _ in range(3)] and tensor.numpy().tolist() == [*numbers]
    array = host(numbers) + 0
    tensor = dlbridge.from_dlpack(array)
    doubled = load().jit(lambda x: 2 * x, donate_argnums=0)(array)
    assert (np.asarray(doubled) == 2 * numbers).all()
    assert (tensor.numpy() == numbers).all()


def test_a_computation_that_runs_is_waited_for():
    jax = load()

    @jax.jit
    def slow(x):
        return jax.lax.fori_loop(0, 20, lambda _, y: jax.numpy.sin(y) @ x * 1e-3 + 1, x)

    x = host(np.ones((300, 300), "float32"))
    expected = np.asarray(slow(x))
    for _ in range(3):
        assert (dlbridge.from_dlpack(slow(x)).numpy() == expected).all()


def test_a_patched_method_is_called():
    array = host(np.ones(3))
    assert dlbridge.from_dlpack(array).tolist() == [1, 1, 1]
    seven = np.array([7.0])
    with mock.patch.object(
        type(array), "__dlpack__", lambda _, **keywords: seven.__dlpack__(**keywords)
    ):
        assert dlbridge.from_dlpack(array).tolist() == [7]
    assert dlbridge.from_dlpack(array).tolist() == [1, 1, 1]


def test_an_inspected_array_says_what_dlpack_says():
    assert "__dlpack__" in str(dlbridge.inspect(host(np.ones(3))).protocol)


def test_an_array_goes_back_to_a_consumer_of_legacy_capsules():
    array = host(np.arange(3.0))
    tensor = dlbridge.from_dlpack(array)
    assert load().dlpack.from_dlpack(tensor).tolist() == [0, 1, 2]
    assert '"dltensor"' in repr(tensor.__dlpack__())


def test_the_error_of_a_write_says_what_it_is():
    example = pytest.importorskip("dlbridge_example", reason="the example is not installed")
    array = host(np.ones(3, "float32"))
    with pytest.raises(TypeError, match="read-only, as legacy capsules and arrays of JAX are"):
        example.normalise(array)


def test_a_class_of_its_name_does_not_lose_the_flag():
    """A class in Python with the name of JAX's arrays, over `bytes`, was exported by the legacy
    ABI, which has no read-only flag."""
    fake = type("ArrayImpl", (bytes,), {"__module__": type(host(np.ones(3))).__module__})
    tensor = dlbridge.from_dlpack(fake(b"abc"))
    assert tensor.readonly and tensor.tolist() == [*b"abc"]
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__()
