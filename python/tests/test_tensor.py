"""`dlbridge.Tensor` as users expect an array: parts, values, copies, functions of others."""

from __future__ import annotations

import builtins
import copy
import operator
import pickle
import sys
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import dlbridge
from support import arange, fill

NUMBERS = [
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bool", "float16", "float32", "float64", "complex64", "complex128"),
]

INDICES = [
    np.s_[0],
    np.s_[-1],
    np.s_[1, 2],
    np.s_[1, -1, 3],
    np.s_[()],
    np.s_[...],
    np.s_[..., 1],
    np.s_[0, ..., 1],
    np.s_[:, 1],
    np.s_[1:],
    np.s_[::-1],
    np.s_[:, ::-2, 1:4:2],
    np.s_[:, 3:1],
    np.s_[5:],
    np.s_[::-1, ::-1, ::-3],
    np.s_[None],
    np.s_[:, None, 1],
    np.s_[..., None],
    np.s_[-100:100, 2:-100:-1],
    np.s_[np.int64(1), True:2],
]


def cube():
    array = np.arange(2 * 3 * 4, dtype="int16").reshape(2, 3, 4)
    return array, dlbridge.from_dlpack(array)


class TestParts:
    @pytest.mark.parametrize("index", INDICES, ids=repr)
    def test_they_are_those_of_numpy_over_the_same_memory(self, index):
        array, tensor = cube()
        part, wanted = tensor[index], np.asarray(array[index])
        assert (part.shape, part.tolist()) == (wanted.shape, wanted.tolist())
        if part.size:
            fill(part, 99)
            assert np.all(array[index] == 99)
            assert (array == 99).sum() == wanted.size

    @pytest.mark.parametrize("index", [2, -3, (0, 3), (0, 0, 4), (0, 0, 0, 0), (..., ...), 2**70])
    def test_an_index_that_is_not_there_is_an_index_error(self, index):
        array, tensor = cube()
        with pytest.raises(IndexError, match="expected"):
            tensor[index]
        with pytest.raises(IndexError):
            array[index]

    def test_the_error_names_the_axis_of_the_whole_tensor(self):
        with pytest.raises(IndexError, match="from -3 to 2 on axis 1, found 7"):
            cube()[1][0, 7]

    @pytest.mark.parametrize("index", [[0], True, np.array([0, 1]), "x", 1.5, (0, [1])])
    def test_another_index_is_a_type_error_that_says_what_to_do(self, index):
        with pytest.raises(TypeError, match=r"expected an int, a slice, .*numpy\.from_dlpack"):
            cube()[1][index]

    @pytest.mark.parametrize("error", [ValueError, KeyError, RuntimeError, KeyboardInterrupt])
    def test_an_exception_of_an_index_is_raised(self, error):
        class Index:
            def __index__(self):
                raise error("its own")

        tensor = cube()[1]
        for use in (
            lambda: tensor[Index()],
            lambda: tensor[0, Index()],
            lambda: tensor.item(0, Index(), 0),
            lambda: tensor.reshape(Index(), 4),
            lambda: tensor.reshape((Index(), 4)),
        ):
            with pytest.raises(error, match="its own"):
                use()

    def test_a_part_keeps_the_memory(self):
        array = np.arange(6.0).reshape(2, 3)
        dead = weakref.ref(array)
        part = dlbridge.from_dlpack(array)[1, ::2]
        del array
        assert (part.tolist(), dead() is not None) == ([3, 5], True)
        del part
        assert dead() is None

    def test_a_part_is_as_read_only_as_the_whole(self):
        part = dlbridge.from_dlpack(b"abc")[1:]
        assert (part.readonly, part.tolist()) == (True, list(b"bc"))

    def test_a_tensor_is_iterated_along_its_first_axis(self):
        array, tensor = cube()
        assert [part.tolist() for part in tensor] == array.tolist()
        assert list(dlbridge.zeros((0, 3))) == []
        assert len(tensor) == 2
        rows = iter(tensor)
        assert (iter(rows) is rows, operator.length_hint(rows)) == (True, 2)
        assert (len(list(rows)), list(rows), operator.length_hint(rows)) == (2, [], 0)
        for use in (iter, len, list):
            with pytest.raises(TypeError, match="0-d"):
                use(dlbridge.zeros(()))

    @pytest.mark.parametrize("shape", [(24,), (6, -1), (-1,), (4, 3, 2), (1, 24, 1)])
    def test_it_has_another_shape_over_the_same_memory(self, shape):
        array, tensor = cube()
        for part in (tensor.reshape(shape), tensor.reshape(*shape)):
            assert part.tolist() == array.reshape(shape).tolist()
            assert part.data_ptr == tensor.data_ptr

    @pytest.mark.parametrize("shape", [(5,), (-1, -1), (5, -1), (-2, -12), (0, -1)])
    def test_a_shape_of_other_elements_is_a_value_error(self, shape):
        with pytest.raises(ValueError, match="expected"):
            cube()[1].reshape(shape)

    def test_a_sequence_of_extents_is_asked_once(self):
        """A `__len__` that reshapes with the same sequence took twice the time at each level."""
        asked = []

        class Shape(Sequence):
            def __len__(self):
                asked.append("len")
                raise ValueError

            def __getitem__(self, at):
                asked.append(at)
                raise ValueError

        with pytest.raises(ValueError):
            cube()[1].reshape(Shape())
        assert asked == [0]

    def test_a_sequence_of_extents_may_never_end(self):
        """It took all memory, which ended the process."""

        class Shape(Sequence):
            def __len__(self):
                return 2**40

            def __getitem__(self, at):
                assert at < 1000
                return 1

        for use in (cube()[1].reshape, dlbridge.zeros):
            with pytest.raises((BufferError, ValueError), match="64"):
                use(Shape())

    def test_a_shape_that_needs_a_copy_is_an_error_that_names_it(self):
        with pytest.raises(ValueError, match="copy"):
            cube()[1].T.reshape(24)

    def test_its_transpose_is_numpys(self):
        array, tensor = cube()
        assert tensor.T.tolist() == array.T.tolist()
        assert tensor.T.data_ptr == tensor.data_ptr

    def test_torch_and_jax_take_a_part(self):
        _, tensor = cube()
        torch = pytest.importorskip("torch", reason="torch is not installed")
        assert torch.from_dlpack(tensor[1, ::2]).tolist() == [[12, 13, 14, 15], [20, 21, 22, 23]]
        jax = pytest.importorskip("jax", reason="jax is not installed")
        assert jax.numpy.from_dlpack(tensor[1]).tolist() == tensor[1].tolist()


class TestValues:
    @pytest.mark.parametrize("dtype", NUMBERS)
    def test_lists_and_items_are_those_of_numpy(self, dtype):
        array = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
        for data in (array, array.T, array[:, ::-2], array[:0], array[0, 1]):
            data = np.asarray(data)
            tensor = dlbridge.from_dlpack(data)
            assert tensor.tolist() == data.tolist()
        tensor = dlbridge.from_dlpack(array)
        found, wanted = tensor.item(1, -1), array.item(1, -1)
        assert (found, type(found)) == (wanted, type(wanted))
        assert tensor[1, 1].item() == array[1, 1].item()

    def test_halves_are_exact(self):
        every = np.arange(2**16, dtype="uint16")
        halves = every.view("float16").astype("float64")
        found = dlbridge.from_dlpack(every.view("float16")).tolist()
        np.testing.assert_array_equal(found, halves)
        found = dlbridge.from_bytes(every.tobytes(), dtype="bfloat16").tolist()
        np.testing.assert_array_equal(found, (every.astype("uint32") << 16).view("float32"))

    def test_a_list_that_is_larger_than_the_memory_is_an_error(self):
        for array in (
            np.broadcast_to(np.int8(1), 2**48),
            np.broadcast_to(np.int8(1), (2, 2**48)),
            np.empty((2**48, 0)),
        ):
            with pytest.raises(MemoryError, match="cannot allocate"):
                dlbridge.from_dlpack(array).tolist()

    def test_other_than_one_element_is_no_item(self):
        for tensor in (dlbridge.zeros(2), dlbridge.zeros(0)):
            with pytest.raises(ValueError, match="expected a tensor of one element"):
                tensor.item()
        with pytest.raises(ValueError, match="expected 2 indices, found 1"):
            dlbridge.zeros((2, 2)).item(0)

    def test_a_type_without_numbers_is_a_type_error(self):
        with pytest.raises(TypeError, match="ml_dtypes"):
            dlbridge.zeros(2, dtype="complex32").tolist()
        for method in ("tolist", "numpy", "item"):
            with pytest.raises(TypeError, match=r"found int4; .*x\)?\.tobytes\(\) has"):
                getattr(dlbridge.zeros(1, dtype="int4"), method)()
        assert dlbridge.from_bytes(b"\x21", dtype="int4", shape=2).tobytes() == b"\x21"

    @pytest.mark.parametrize("value", [0, 1, 2.5, True, -3])
    def test_a_scalar_is_a_number_as_in_numpy(self, value):
        array = np.array(value)
        tensor = dlbridge.from_dlpack(array)
        assert (bool(tensor), int(tensor), float(tensor)) == (bool(value), int(value), float(value))
        try:
            wanted = operator.index(array)
        except TypeError:
            with pytest.raises(TypeError, match="expected an integer as an index"):
                operator.index(tensor)
        else:
            assert operator.index(tensor) == wanted
            assert "abcd"[tensor if value >= 0 else 0] == "abcd"[max(value, 0)]

    def test_other_tensors_are_no_numbers(self):
        for use in (int, float, operator.index):
            with pytest.raises(TypeError, match="expected a 0-d tensor"):
                use(dlbridge.zeros(1, dtype="int32"))
        assert not dlbridge.zeros((1, 1))
        for shape in (0, 2):
            with pytest.raises(ValueError, match="ambiguous"):
                bool(dlbridge.zeros(shape))
        with pytest.raises(TypeError):
            float(dlbridge.zeros((), dtype="complex64"))

    def test_text_has_the_values(self):
        assert repr(arange(3, dtype="float32")) == (
            "dlbridge.Tensor([0.0, 1.0, 2.0], shape=(3,), dtype=float32, device=cpu)"
        )
        matrix = dlbridge.from_dlpack(np.array([[1, 2], [3, 4]], "complex64"))
        assert repr(matrix).splitlines() == [
            "dlbridge.Tensor([[(1.0+0.0j), (2.0+0.0j)],",
            "                 [(3.0+0.0j), (4.0+0.0j)]], "
            "shape=(2, 2), dtype=complex64, device=cpu)",
        ]

    def test_text_of_many_values_is_cut_where_numpy_cuts(self):
        for array in (np.arange(1001), np.arange(1000), np.arange(4000).reshape(5, 8, 100)):
            ours = repr(dlbridge.from_dlpack(array)).replace("dlbridge.Tensor(", "")
            ours = ours[: ours.index(", shape=")]
            theirs = np.array2string(array, separator=",")
            assert "".join(ours.split()) == "".join(theirs.split())
            assert max(map(len, ours.splitlines())) < 80


class TestCopies:
    def test_a_copy_has_memory_of_its_own(self):
        array, tensor = cube()
        for twin in (tensor.T.copy(), copy.deepcopy(tensor.T)):
            assert twin.contiguous
            assert not twin.readonly
            fill(twin, 7)
        assert array.tolist() == tensor.tolist() != twin.tolist()
        assert dlbridge.from_dlpack(b"ab").copy().readonly is False

    def test_a_shallow_copy_is_over_the_same_memory(self):
        _, tensor = cube()
        twin = copy.copy(tensor)
        assert twin is not tensor
        assert (twin.data_ptr, twin.shape) == (tensor.data_ptr, tensor.shape)

    def test_it_has_weak_references(self):
        tensor = dlbridge.zeros(3)
        gone = weakref.ref(tensor)
        assert gone() is tensor
        del tensor
        assert gone() is None

    def test_it_stays_on_its_device(self):
        tensor = dlbridge.zeros(3)
        assert tensor.to_device("cpu") is tensor
        with pytest.raises(
            BufferError, match=r"to_device: expected cpu, where .*, found cuda:0; .*to\("
        ):
            tensor.to_device("cuda:0")
        with pytest.raises(TypeError, match="to_device: expected one device, found 0"):
            tensor.to_device()

    @pytest.mark.parametrize(
        ("device", "error"),
        [("cup", ValueError), ("cuda:x", ValueError), (3, TypeError), (("cpu",), TypeError)],
    )
    def test_an_unknown_device_is_an_error_that_lists_devices(self, device, error):
        with pytest.raises(error, match=r"device: .*expected .*cpu"):
            dlbridge.zeros(3).to_device(device)

    def test_devices_of_frameworks_are_taken(self):
        tensor = dlbridge.zeros(3)
        for device in ((1, 0), (1, None)):
            assert tensor.to_device(device) is tensor
        torch = pytest.importorskip("torch", reason="torch is not installed")
        assert tensor.to_device(torch.device("cpu")) is tensor
        with pytest.raises(BufferError, match="found cuda:1"):
            tensor.to_device(torch.device("cuda", 1))
        assert dlbridge.from_dlpack(np.ones(3), device=torch.device("cpu")).device == "cpu"
        jax = pytest.importorskip("jax", reason="jax is not installed")
        assert tensor.to_device(jax.devices("cpu")[0]) is tensor

    def test_a_tensor_that_requires_grad_has_parts_that_do(self):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        part = dlbridge.from_dlpack(torch.ones(3, requires_grad=True))[1:]
        assert part.requires_grad
        assert not part.copy().requires_grad


ML_DTYPES = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e3m4"]


class TestOthers:
    """Functions of other libraries that are not of DLPack."""

    @pytest.mark.parametrize("dtype", NUMBERS)
    def test_numpy_makes_an_array_over_the_same_memory(self, dtype):
        tensor = dlbridge.zeros((2, 3), dtype=dtype)
        for array in (tensor.numpy(), np.asarray(tensor)):
            assert (array.dtype, array.shape) == (dtype, (2, 3))
            assert array.ctypes.data == tensor.data_ptr
        assert np.asarray(tensor, dtype="complex128").dtype == "complex128"

    @pytest.mark.parametrize("dtype", ML_DTYPES)
    def test_types_of_ml_dtypes_are_shared_by_it(self, dtype):
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        data = np.array([[0, 0.5, 1], [-2, 1.5, 4]], getattr(ml_dtypes, dtype))
        tensor = dlbridge.from_bytes(data.tobytes(), dtype=dtype, shape=(2, -1))
        for array in (tensor.numpy(), np.asarray(tensor), np.array(tensor)):
            assert array.dtype == data.dtype
            assert array.astype("float32").tolist() == data.astype("float32").tolist()
        assert tensor.T[1].numpy().astype("float32").tolist() == [0.5, 1.5]
        tensor.numpy()[0, 0] = 2
        assert tensor.numpy()[0, 0] == 2

    def test_the_array_of_ml_dtypes_keeps_the_memory(self):
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        memory = np.ones(3, ml_dtypes.bfloat16)
        gone = weakref.ref(memory)
        array = dlbridge.from_dlpack(memory).numpy()
        assert array.ctypes.data == memory.ctypes.data
        del memory
        assert gone() is not None
        del array
        assert gone() is None

    def test_jax_makes_an_array(self):
        jax = pytest.importorskip("jax", reason="jax is not installed")
        for dtype in ("float32", "int32", "bfloat16"):
            tensor = arange(6, dtype=dtype).reshape(2, 3)
            array = jax.numpy.asarray(tensor)
            assert (str(array.dtype), array.tolist()) == (dtype, tensor.tolist())

    def test_pandas_makes_a_series(self):
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        series = pandas.Series(arange(3, dtype="int16"))
        assert (series.dtype, series.tolist()) == ("int16", [0, 1, 2])

    def test_pyarrow_makes_an_array(self):
        pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        array = pyarrow.array(arange(3, dtype="int16"))
        assert (array.type, array.to_pylist()) == (pyarrow.int16(), [0, 1, 2])

    def test_pillow_makes_an_image_of_the_array(self):
        image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
        pixels = np.arange(2 * 3 * 3, dtype="uint8").reshape(2, 3, 3)
        for part in (
            pixels,
            pixels[::-1],
            pixels[:, :, 0],
            pixels[:, ::2].astype("float32")[..., 0],
        ):
            tensor = dlbridge.from_dlpack(part)
            for array in (tensor, tensor.numpy()):
                assert np.asarray(image.fromarray(array)).tolist() == part.tolist()

    @pytest.mark.parametrize("dtype", NUMBERS)
    def test_its_array_interface_is_numpys(self, dtype):
        array = np.arange(12).astype(dtype).reshape(3, 4)
        read_only = np.broadcast_to(array, (2, 3, 4))
        for part in (array, array[::-1, ::2], array.T, array[0, 0:0], read_only):
            ours = dlbridge.from_dlpack(part).__array_interface__
            theirs = part.__array_interface__
            for key in ("version", "typestr", "data", "shape"):
                assert ours[key] == theirs[key]
            assert ours.get("strides") == (None if part.flags.c_contiguous else part.strides)
            assert dlbridge.from_dlpack(part).tobytes() == part.tobytes()

    def test_a_type_without_an_array_interface_has_none(self):
        for dtype in ("bfloat16", "float8_e5m2", "int4", "float32x4"):
            assert not hasattr(dlbridge.zeros(4, dtype=dtype), "__array_interface__")

    @pytest.mark.skipif(
        np.lib.NumpyVersion(np.__version__) < "2.4.0", reason="NumPy 2.4 asks __numpy_dtype__"
    )
    def test_numpy_knows_the_type_of_a_tensor(self):
        assert np.result_type(dlbridge.zeros(2, dtype="float32"), np.int64) == "float64"
        for dtype in NUMBERS:
            assert np.dtype(dlbridge.zeros(2, dtype=dtype)) == dtype
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        assert np.dtype(dlbridge.zeros(2, dtype="bfloat16")) == ml_dtypes.bfloat16


SCALAR = dlbridge.from_dlpack(np.array(3, dtype="int64"))
MATRIX = np.arange(6, dtype="float32").reshape(2, 3)
TENSOR = dlbridge.from_dlpack(MATRIX)

CALLS: dict[str, Callable[[], object]] = {
    "float": lambda: float(SCALAR),
    "int": lambda: int(SCALAR),
    "index": SCALAR.__index__,
    "bool": lambda: bool(SCALAR),
    "item": SCALAR.item,
    "item of an index": lambda: TENSOR.item(1, 2),
    "tolist": TENSOR.tolist,
    "tobytes": TENSOR.tobytes,
    "dtype": lambda: TENSOR.dtype,
    "shape": lambda: TENSOR.shape,
    "repr": lambda: repr(TENSOR),
    "part": lambda: TENSOR[1, ::2],
    "reshape": lambda: TENSOR.reshape(3, 2),
    "copy": TENSOR.copy,
    "deepcopy": lambda: copy.deepcopy(TENSOR),
    "__array__": TENSOR.__array__,
    "__array_interface__": lambda: TENSOR.__array_interface__,
    "__numpy_dtype__": lambda: TENSOR.__numpy_dtype__,
    "__arrow_c_array__": TENSOR.__arrow_c_array__,
    "zeros": lambda: dlbridge.zeros((2, 3), dtype=np.float32),
    "zeros of a name": lambda: dlbridge.zeros((2, 3), dtype="float32").numpy(),
    "from_bytes": lambda: dlbridge.from_bytes(bytearray(8), dtype="float32"),
    "from_dlpack": lambda: dlbridge.from_dlpack(MATRIX),
    "from_dlpack of a copy": lambda: dlbridge.from_dlpack(MATRIX, copy=True),
    "np.asarray": lambda: np.asarray(TENSOR),
    "np.from_dlpack": lambda: np.from_dlpack(TENSOR),
    "memoryview": lambda: memoryview(TENSOR),
    "reduce": lambda: TENSOR.__reduce_ex__(pickle.HIGHEST_PROTOCOL),
}
for name in ("bool", "uint8", "int16", "float16", "float32", "float64", "complex128"):
    CALLS[f"numpy of {name}"] = dlbridge.zeros(3, dtype=name).numpy


@pytest.mark.parametrize("name", CALLS)
def test_no_call_imports_again(name, monkeypatch):
    call, found = CALLS[name], []
    # As where `ml_dtypes` is not installed: each import of it would fail after a search.
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    call()
    load = builtins.__import__

    def counted(module, *arguments, **keywords):
        found.append(module)
        return load(module, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", counted)
    call()
    monkeypatch.undo()
    assert found == []
