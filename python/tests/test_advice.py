"""Each call that an error advises, followed: the values are those that were passed, or what is lost
was said."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import dlbridge
from dlbridge import _native

torch = pytest.importorskip("torch", reason="torch is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
jnp = jax.numpy

ADVICE = re.compile(
    r"(?:pass|convert it with) (?:a copy: |one field, |its bytes, )?"
    r"(?P<numpy>.*?)(?:, in PyTorch (?P<torch>.*?))?"
    r"(?P<loss>, (?:without|which|if|its|and|or) .*)?$",
    re.DOTALL,
)


def followed(function, x):
    """What a function returns for what its error advises, and what the advice says is lost."""
    with pytest.raises((TypeError, BufferError)) as refused:
        function(x)
    found = ADVICE.search(str(refused.value))
    assert found, str(refused.value)
    is_torch = isinstance(x, torch.Tensor)
    call = found["torch" if is_torch else "numpy"]
    names = {"np": np, "numpy": np, "torch": torch, "jax": jax, "ml_dtypes": ml_dtypes, "x": x}
    with warnings.catch_warnings():
        # A number that is cut without a word, such as NumPy's imaginary parts.
        warnings.simplefilter("error")
        return function(eval(call, names)), (found["loss"] or "").split(", and read the result")[0]


def numbers(result):
    return np.asarray(result.tolist())


ARRAYS = {
    "numpy": lambda values, dtype: np.array(values, dtype),
    "torch": lambda values, dtype: torch.tensor(values, dtype=getattr(torch, dtype)),
    "jax": lambda values, dtype: jnp.array(values, dtype),
}

CASES = [
    ("float32", "float64", [0.5, -2], [0.5, -2], ""),
    ("float16", "float32", [0.5, -2], [0.5, -2], ""),
    ("int32", "float64", [1, 2], [1, 2], ""),
    ("uint8", "int64", [1, 255], [1, 255], ""),
    ("bool", "uint8", [True, False], [1, 0], ""),
    ("float32", "int64", [1.5, -2], [1, -2], ", without the fractions"),
    ("int32", "uint8", [1, 2], [1, 2], ", if the numbers fit"),
    ("int32", "bool", [0, 2], [False, True], ", which says what is not 0"),
    ("complex64", "float32", [1 + 2j, 3], [1, 3], ", without the imaginary parts"),
    ("complex64", "float64", [1 + 2j, 3], [1, 3], ", without the imaginary parts"),
]


@pytest.mark.parametrize("framework", ARRAYS)
@pytest.mark.parametrize(("old", "new", "values", "wanted", "lost"), CASES)
def test_of_an_argument_of_another_dtype(framework, old, new, values, wanted, lost):
    """Imaginary parts were lost, and JAX's `astype` changed nothing without x64."""
    x = ARRAYS[framework](values, old)
    result, said = followed(lambda x: _native._read(x, new), x)
    assert (numbers(result).tolist(), result.dtype, said) == (wanted, new, lost)


class Tensor:
    """Of a framework that is not NumPy's kind."""

    def __init__(self, values, dtype):
        self.values = np.array(values, dtype)

    def __dlpack__(self, **keywords):
        return self.values.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def __array__(self, dtype=None, copy=None):
        return self.values.__array__(dtype or self.values.dtype)


class EagerTensor(Tensor):
    """TensorFlow's has neither `astype` nor `real`."""

    __module__ = "tensorflow.python.framework.ops"


class Array(Tensor):
    """MLX's `astype` takes a dtype of its own."""

    __module__ = "mlx.core"

    def astype(self, dtype):
        raise TypeError(f"astype(): incompatible function arguments: {dtype}")


class PaddleTensor(Tensor):
    """Paddle's `real` is a method."""

    __module__ = "paddle"

    def astype(self, dtype):
        return type(self)(self.values, dtype)

    def real(self):
        return type(self)(self.values.real, self.values.real.dtype)


@pytest.mark.parametrize("kind", [EagerTensor, Array, PaddleTensor])
@pytest.mark.parametrize(("old", "new", "values", "wanted", "lost"), CASES)
def test_of_an_argument_of_other_frameworks(kind, old, new, values, wanted, lost):
    if new in ("float32", "float64", "int64"):
        followed(lambda x: _native._write(x, new), kind(values, old))
    result, said = followed(lambda x: _native._read(x, new), kind(values, old))
    assert (numbers(result).tolist(), result.dtype, said) == (wanted, new, lost)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "complex32", "bcomplex32"])
def test_of_an_argument_of_a_narrow_dtype(name):
    x = np.array([1, 2], getattr(ml_dtypes, name))
    result, said = followed(lambda x: _native._read(x, "float32"), x)
    assert numbers(result).tolist() == [1, 2]
    assert said == (", without the imaginary parts" if "complex" in name else "")


@pytest.mark.parametrize("framework", ARRAYS)
@pytest.mark.parametrize("old", ["float32", "int32"])
def test_of_an_array_to_write(framework, old):
    """JAX's arrays stay constant whatever their dtype."""
    for dtype in ("float32", "float64"):
        if dtype == old and framework != "jax":
            continue
        _, said = followed(
            lambda x, dtype=dtype: _native._write(x, dtype), ARRAYS[framework]([1, 2], old)
        )
        assert said == ""


def test_of_one_of_some_dtypes():
    """It was always the first of the list, int32."""
    for x, wanted in [
        (np.array([0.5, 2], ml_dtypes.bfloat16), [0.5, 2]),
        (np.array([0.5, 2], "float16"), [0.5, 2]),
        (np.array([1, 2**40]), [1, 2**40]),
        (np.array([1, 200], "uint8"), [1, 200]),
        (np.array([1 + 2j, 3]), [1, 3]),
    ]:
        result, said = followed(_native._view, x)
        assert numbers(result).tolist() == wanted
        assert said == (", without the imaginary parts" if x.dtype.kind == "c" else "")


def test_of_an_argument_that_numpy_converts():
    result, said = followed(_native._matrix, np.array([[1 + 2j]]))
    assert (result.tolist(), said) == ([[1]], ", without the imaginary parts")


def test_of_strings_and_bytes():
    """`x.astype("float64")` is an error for most of them."""
    for x, wanted in [
        (np.array([b"a", b"bc"]), [97, 0, 98, 99]),
        (np.array(["a", "bc"]), [97, 0, 98, 99]),
    ]:
        result, _ = followed(dlbridge.from_dlpack, x)
        assert result.tolist() == wanted
        digits = x.astype(x.dtype)
        digits[:] = x.dtype.type(b"1" if x.dtype.kind == "S" else "1")
        assert digits.astype("float64").tolist() == [1, 1]


def test_of_other_arrays_of_numpy():
    for x, wanted in [
        (np.array([1, 2], ">i4"), [1, 2]),
        (np.array([0.5, 2], "longdouble"), [0.5, 2]),
        (np.array([1, 2], object), [1, 2]),
        (np.array([1, 2], ml_dtypes.int4), [1, 2]),
        (np.array(["2026-11-27"], "datetime64[D]"), [20784]),
        (np.array([(1, 2)], [("a", "i4"), ("b", "i4")]), [1]),
        (np.array([b"ab"], "V2"), [97, 98]),
    ]:
        result, _ = followed(dlbridge.from_dlpack, x)
        assert result.tolist() == wanted


def test_of_random_keys_of_jax():
    key = jax.random.key(7)
    result, _ = followed(dlbridge.from_dlpack, key)
    assert result.tolist() == jax.random.key_data(key).tolist()


def test_of_other_objects():
    sparse = pytest.importorskip("scipy.sparse", reason="scipy is not installed")
    for x, wanted in [
        ([1, 2], [1, 2]),
        ((value for value in (1, 2)), [1, 2]),
        (3.5, 3.5),
        (sparse.csr_array(np.eye(2)), [[1, 0], [0, 1]]),
        ("ab", [97, 98]),
    ]:
        result, _ = followed(dlbridge.from_dlpack, x)
        assert result.tolist() == wanted


def test_of_layouts_and_gradients():
    for x in (np.arange(6.0).reshape(2, 3).T, np.arange(6)[::-1]):
        column = dlbridge.from_dlpack(x)
        with pytest.raises(ValueError, match=r"pass np\.ascontiguousarray\(x\)"):
            column.view("uint8")
        wanted = np.ascontiguousarray(x).view("uint8").tolist()
        assert dlbridge.from_dlpack(np.ascontiguousarray(x)).view("uint8").tolist() == wanted
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match=r"pass x\.detach\(\)"):
        _native._write(x, "float32")
    _native._write(x.detach(), "float32")
    masked = np.ma.masked_array([1, 2], [True, False])
    with pytest.raises(BufferError, match=r"pass x\.filled\(value\)"):
        dlbridge.from_dlpack(masked)
    assert dlbridge.from_dlpack(masked.filled(0)).tolist() == [0, 2]
