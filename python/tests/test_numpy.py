"""NumPy arrays, which are read where NumPy's C API has their fields, and made by it of tensors: as
`numpy.from_dlpack` would, and quicker."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import dlbridge
from support import failures_in_threads

# Every type that DLPack has, and every layout.
DTYPES = [
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
    *("byte", "short", "intc", "long", "longlong", "uintc", "ulong", "ulonglong"),
]

BASE = np.arange(24).reshape(2, 3, 4)
LAYOUTS = {
    "contiguous": BASE,
    "transposed": BASE.transpose(2, 0, 1),
    "reversed": BASE[::-1, :, ::-1],
    "stepped": BASE[:, ::2, 1::2],
    "broadcast": np.broadcast_to(BASE[:, :1], (2, 3, 4)),
    "empty": np.zeros((0, 3)),
    "0-d": np.array(2.5),
    "64-d": np.zeros((1,) * (64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32)),
}


class Sub(np.ndarray):
    """A subclass with a `__dlpack__` of its own is asked through that."""

    def __dlpack__(self, **keywords):
        return super().__dlpack__(**keywords)


def by_dlpack(array):
    """What the array's own `__dlpack__` says."""
    return dlbridge.inspect(array.view(Sub))


def told(description):
    keys = ("dtype", "device", "shape", "data_ptr", "nbytes", "readonly", "copied")
    return {key: getattr(description, key) for key in keys}


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_type_is_named_as_numpy_names_it(dtype):
    array = np.zeros((2, 3), dtype)
    description = dlbridge.inspect(array)
    assert description.protocol == "NumPy C API"
    assert told(description) == told(by_dlpack(array))
    assert description.strides == by_dlpack(array).strides


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_is_told_as_numpy_tells_it(name):
    array = LAYOUTS[name]
    description = dlbridge.inspect(array)
    assert description.protocol == "NumPy C API"
    # Before 2.1, NumPy cannot say read-only through DLPack, and refuses.
    if array.flags.writeable or np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        assert told(description) == told(by_dlpack(array))
    if array.size:
        assert description.strides == tuple(step // array.itemsize for step in array.strides)


def test_a_read_only_array_stays_so():
    array = np.arange(3.0)
    array.flags.writeable = False
    assert dlbridge.inspect(array).readonly
    assert not dlbridge.inspect(np.arange(3.0)).readonly


@pytest.mark.parametrize(
    "array",
    [
        np.arange(3, dtype=">f4"),
        np.array(["a", "b"]),
        np.array([None, 1]),
        np.zeros(3, "datetime64[s]"),
        np.zeros(3, [("x", "f4"), ("y", "f4")]),
        np.zeros(3, "longdouble"),
        np.zeros(3, [("x", "f4"), ("y", "i1")])["x"],
    ],
    ids=["other byte order", "text", "objects", "times", "records", "long double", "odd strides"],
)
def test_a_numpy_array_that_numpy_refuses_is_an_error_with_numpys_as_its_cause(array):
    with pytest.raises(BufferError, match=r"expected .*, found .*; pass ") as ours:
        dlbridge.from_dlpack(array)
    with pytest.raises(BufferError) as numpys:
        array.__dlpack__(max_version=(1, 3))
    assert str(ours.value.__cause__) == str(numpys.value)


@pytest.mark.parametrize(
    "scalar", [np.datetime64(3, "s"), np.timedelta64(3, "s"), np.longdouble(3), np.str_("3")]
)
def test_a_scalar_is_refused_as_its_array_is(scalar):
    with pytest.raises(BufferError) as of_array:
        dlbridge.from_dlpack(np.array([scalar]))
    with pytest.raises(BufferError) as of_scalar:
        dlbridge.from_dlpack(scalar)
    assert str(of_scalar.value) == str(of_array.value)


def test_a_scalar_of_a_type_that_dlpack_has_is_imported():
    for scalar in (np.float32(2.5), np.int8(-3), np.bool_(True), np.complex64(1j)):
        assert dlbridge.from_dlpack(scalar).item() == scalar
    assert dlbridge.from_dlpack(np.bytes_(b"ab")).tolist() == list(b"ab")


class TestMasked:
    def test_masked_elements_are_refused(self):
        array = np.ma.masked_array([1, 2, 3], mask=[True, False, True])
        for keywords in ({}, {"copy": True}, {"device": "cpu"}):
            with pytest.raises(BufferError, match=r"mask: expected .*, found 2 .*x\.filled"):
                dlbridge.from_dlpack(array, **keywords)
        with pytest.raises(BufferError, match="mask: expected"):
            dlbridge.from_dlpack(np.ma.masked)

    def test_without_masked_elements_it_is_an_array(self):
        array = np.ma.masked_array([1, 2, 3], mask=False)
        tensor = dlbridge.from_dlpack(array)
        assert tensor.data_ptr == array.ctypes.data
        assert dlbridge.from_dlpack(np.ma.masked_array([1, 2])).tolist() == [1, 2]

    def test_a_subclass_of_it_has_a_mask_as_well(self):
        class Masked(np.ma.MaskedArray):
            pass

        with pytest.raises(BufferError, match="mask: expected"):
            dlbridge.from_dlpack(Masked([1, 2], mask=[True, False]))


@pytest.mark.parametrize(
    "make",
    [
        "x",
        "x[:0]",
        "x.view(np.recarray)",
        "x.view(type('Derived', (np.ndarray,), {}))",
        "np.ma.masked_array(x, mask=None)",
        "np.array([b''], 'V')",
        "x[0, 0]",
    ],
)
def test_elements_without_bytes_are_refused_before_numpy_divides_by_their_size(make):
    """`ndarray.__dlpack__` ended the process (SIGFPE)."""
    program = f"""
import dlbridge, numpy as np
# NumPy divides where the strides are not those of contiguous memory.
x = np.ndarray((3, 2), np.dtype([]), np.zeros(8, "u1"), strides=(2, 1))
for keywords in {{}}, {{"copy": True}}, {{"device": "cpu"}}:
    try:
        dlbridge.from_dlpack({make}, **keywords)
    except (BufferError, TypeError) as error:
        assert "dtype: expected" in str(error) or "ufunc 'add'" in str(error), error
    else:
        raise SystemExit("imported")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done


class TestMlDtypes:
    NAMES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")

    @pytest.mark.parametrize("name", NAMES)
    def test_its_arrays_are_imported_over_the_same_memory(self, name):
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        array = np.arange(1, 13).reshape(3, 4).astype(getattr(ml_dtypes, name))[::-1, ::2]
        tensor = dlbridge.from_dlpack(array)
        assert (tensor.dtype, tensor.shape) == (name, (3, 2))
        assert tensor.data_ptr == array.ctypes.data
        bits = f"uint{8 * array.itemsize}"
        assert tensor.numpy().view(bits).tolist() == array.view(bits).tolist()

    def test_the_tensor_keeps_the_array_and_its_flag(self):
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        array = np.ones(3, ml_dtypes.bfloat16)
        array.flags.writeable = False
        dead = weakref.ref(array)
        tensor = dlbridge.from_dlpack(array)
        del array
        assert tensor.readonly
        assert tensor.tolist() == [1, 1, 1]
        assert dead() is not None
        del tensor
        assert dead() is None

    @pytest.mark.parametrize("name", NAMES)
    def test_python_code_cannot_empty_the_base_of_an_array(self, name):
        """It was a `SimpleNamespace`: `vars(base).clear()` freed the memory below the array."""
        pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        array = dlbridge.zeros((2, 3), dtype=name).numpy()
        bases = [array]
        while getattr(bases[-1], "base", None) is not None:
            bases.append(bases[-1].base)
        assert type(bases[-1]) is dlbridge.Tensor
        for base in bases:
            with pytest.raises(TypeError, match="__dict__"):
                vars(base)

    def test_numbers_narrower_than_a_byte_are_refused(self):
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        with pytest.raises(BufferError, match=r"found int4; pass x\.astype"):
            dlbridge.from_dlpack(np.zeros(2, ml_dtypes.int4))

    def test_an_array_of_a_derived_class_is_one_of_numpy(self):
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        array = np.ones(3, ml_dtypes.bfloat16).view(type("Derived", (np.ndarray,), {}))
        assert dlbridge.from_dlpack(array).data_ptr == array.ctypes.data

    @pytest.mark.parametrize(
        "bits",
        [
            np.zeros(4, "uint8"),
            np.zeros(4, "int16"),
            memoryview(b"1234"),
            dlbridge.zeros(4, dtype="uint16"),
            None,
        ],
    )
    def test_another_object_does_not_say_where_its_bits_are(self, bits):
        """An object whose `__dlpack__` raised, with a dtype named `bfloat16` and any `view`
        method, made a tensor with twice its bytes."""

        class Fake:
            dtype = SimpleNamespace(name="bfloat16")

            def view(self, *_):
                return self if bits is None else bits

            def __dlpack__(self, **_):
                raise BufferError("its own reason")

        with pytest.raises(BufferError, match="its own reason"):
            dlbridge.from_dlpack(Fake())


def test_a_subclass_is_asked():
    asked = []

    class Asked(np.ndarray):
        def __dlpack__(self, **keywords):
            asked.append(keywords)
            return super().__dlpack__(**keywords)

    description = dlbridge.inspect(np.zeros(3).view(Asked))
    assert description.protocol.startswith("__dlpack__")
    assert asked == [{"max_version": (1, 3)}]


@pytest.mark.parametrize("name", ["__dlpack__", "__getattribute__"])
def test_a_subclass_is_read_by_its_fields_until_it_has_its_own_methods(name):
    class Derived(np.ndarray):
        pass

    class More(Derived):
        __slots__ = ("more",)

    def refuse(*_arguments, **_keywords):
        raise RuntimeError("mine alone")

    for kind in (Derived, More):
        array = np.arange(6.0).reshape(2, 3).T.view(kind)
        tensor = dlbridge.from_dlpack(array)
        assert (tensor.tolist(), tensor.data_ptr) == (array.tolist(), array.ctypes.data)
    setattr(Derived, name, refuse)
    with pytest.raises(RuntimeError, match="mine alone"):
        dlbridge.from_dlpack(array)
    delattr(Derived, name)
    assert dlbridge.from_dlpack(array).tolist() == array.tolist()


def test_classes_of_arrays_that_come_and_go_leave_no_path():
    for number in range(300):
        base = (np.ndarray,) if number % 2 else (bytearray,)
        x = type("Derived", base, {})(8)
        assert dlbridge.from_dlpack(x).shape == (8,)
        del x
        gc.collect(0)


def test_the_array_lives_as_long_as_the_tensor_and_no_longer():
    array = np.arange(5.0)
    before = sys.getrefcount(array)
    tensor = dlbridge.from_dlpack(array)
    assert sys.getrefcount(array) == before + 1
    with pytest.raises(ValueError, match="resize"):
        array.resize(10**6)
    second = np.from_dlpack(tensor)
    del tensor
    gc.collect()
    assert sys.getrefcount(array) == before + 1
    assert second.ctypes.data == array.ctypes.data
    del second
    assert sys.getrefcount(array) == before


def test_the_array_may_be_released_by_any_thread():
    array = np.arange(5.0)
    before = sys.getrefcount(array)
    held = [dlbridge.from_dlpack(array) for _ in range(100)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert sys.getrefcount(array) == before


LIKE = np.zeros(1)
# Before 2.1, NumPy cannot say read-only through DLPack, and refuses.
KEEPS_READ_ONLY = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def convert(source, like=LIKE) -> np.ndarray:
    reason = "the example extension is not installed"
    return pytest.importorskip("dlbridge_example", reason=reason).convert(like, source)


def facts(array: np.ndarray) -> tuple:
    address = array.__array_interface__["data"][0]
    flags = array.flags
    layout = (flags.c_contiguous, flags.f_contiguous, flags.aligned, flags.writeable)
    # Without elements, strides mean nothing.
    strides = array.strides if array.size else None
    return (type(array), array.dtype, array.shape, strides, address, layout, flags.owndata)


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_type_is_what_from_dlpack_makes_of_it(dtype):
    source = np.arange(6).reshape(2, 3).astype(dtype)
    array = convert(source)
    assert facts(array) == facts(np.from_dlpack(dlbridge.from_dlpack(source)))
    assert array.dtype == source.dtype
    assert array.tolist() == source.tolist()


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_is_what_from_dlpack_makes_of_it(name):
    source = LAYOUTS[name]
    array = convert(source)
    assert (array.shape, array.tolist()) == (source.shape, source.tolist())
    if source.flags.writeable or KEEPS_READ_ONLY:
        assert facts(array) == facts(np.from_dlpack(dlbridge.from_dlpack(source)))
    if source.size:
        assert array.ctypes.data == source.ctypes.data
        assert array.flags.writeable == source.flags.writeable


def test_misaligned_memory_is_known_to_be():
    source = np.frombuffer(bytearray(17), dtype="u1")[1:].view("f4")
    array = convert(source)
    assert array.ctypes.data % 4 != 0
    assert not array.flags.aligned


def test_read_only_memory_cannot_be_made_writable():
    source = np.arange(3.0)
    source.flags.writeable = False
    array = convert(source)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_what_one_writes_the_other_reads():
    source = np.arange(3.0)
    array = convert(source)
    array[1] = 7
    assert source.tolist() == [0, 7, 2]


def test_the_memory_lives_as_long_as_an_array_over_it():
    source = np.arange(5.0)
    before = sys.getrefcount(source)
    array = convert(source)
    assert sys.getrefcount(source) == before + 1
    part = array[1:3]
    del array
    gc.collect()
    assert sys.getrefcount(source) == before + 1
    assert part.tolist() == [1, 2]
    del part
    assert sys.getrefcount(source) == before


def test_the_memory_of_an_array_cannot_be_freed_under_it():
    array = convert(np.arange(3.0))
    while isinstance(array.base, np.ndarray):
        array = array.base
    with pytest.raises(TypeError, match="capsule"):
        dlbridge.from_dlpack(array.base)
    assert array.tolist() == [0, 1, 2]


def test_the_base_of_a_tensors_array_is_the_tensor():
    source = np.arange(3.0)
    source.flags.writeable = False
    tensor = dlbridge.from_dlpack(source)
    for array in (tensor.numpy(), tensor.__array__(), np.asarray(tensor, copy=False)):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
    assert tensor.numpy().base is tensor


def test_an_imported_array_of_a_tensor_keeps_the_memory_alone():
    tensor = dlbridge.from_dlpack(np.arange(3.0))
    gone = weakref.ref(tensor)
    again = dlbridge.from_dlpack(tensor.numpy()[1:])
    del tensor
    gc.collect()
    assert gone() is None
    assert again.tolist() == [1, 2]


def test_an_array_that_is_exported_and_imported_again_stays_in_place():
    source = array = BASE.copy()
    for _ in range(100):
        array = convert(array)
    assert array.ctypes.data == source.ctypes.data
    assert array.tolist() == source.tolist()


def test_a_type_that_numpy_has_not_is_refused_in_its_own_words():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensor = dlbridge.from_dlpack(torch.zeros(3, dtype=torch.bfloat16))
    with pytest.raises((BufferError, RuntimeError)) as numpys:
        np.from_dlpack(tensor)
    with pytest.raises(type(numpys.value)) as ours:
        convert(tensor)
    assert str(ours.value) == str(numpys.value)


def test_an_array_of_a_subclass_makes_one_of_numpys_own():
    class Sub(np.ndarray):
        pass

    assert type(convert(np.ones(2), np.zeros(1).view(Sub))) is np.ndarray


def test_an_exception_on_its_way_is_not_lost():
    source = np.arange(3.0)
    before = sys.getrefcount(source)

    def fails():
        array = convert(source)
        array[0] = 5
        raise KeyError("on its way")

    with pytest.raises(KeyError, match="on its way"):
        fails()
    gc.collect()
    assert (sys.getrefcount(source), source[0]) == (before, 5)


def test_any_thread_may_make_and_release_arrays():
    source = np.arange(8.0)
    before = sys.getrefcount(source)

    def work():
        for _ in range(2000):
            assert convert(source)[7] == 7

    assert failures_in_threads(8, work) == []
    held = [convert(source) for _ in range(100)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert sys.getrefcount(source) == before
