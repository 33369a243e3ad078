"""NumPy arrays, which are read where NumPy's C API has their fields."""

import gc
import sys
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import dlbridge
from frameworks.numpy_arrays import DTYPES, LAYOUTS


class Sub(np.ndarray):
    """A subclass is asked through `__dlpack__`, which it may override."""


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
