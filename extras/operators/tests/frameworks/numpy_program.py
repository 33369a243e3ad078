"""`my` has the operators."""
# ruff: noqa: F821

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
scaled = my.scale(x.T, 2.0)
assert isinstance(scaled, np.ndarray) and scaled.dtype == np.float32
np.testing.assert_array_equal(scaled, x.T * 2)
np.testing.assert_array_equal(my.scale(factor=3, x=np.float64([1, 2])), [3, 6])
assert my.scale.__doc__ == "Scales a tensor." and list(
    inspect.signature(my.scale).parameters
) == ["x", "factor"]

a, b = np.random.rand(5, 1, 2, 3), np.random.rand(4, 7, 3)
expected = ((a[..., :, None, :] - b[..., None, :, :]) ** 2).sum(-1)
np.testing.assert_allclose(my.distances(a, b), expected)
assert my.distances(a[:, :, :0], b).shape == (5, 4, 0, 7) and my.distances(
    a[:0], b
).shape == (0, 4, 2, 7)
np.testing.assert_allclose(
    my.distances(np.broadcast_to(a[0, 0], (2, 2, 3)), b[0][::-1])[1],
    expected[0, 0][:, ::-1],
)


def raises(kind, message, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        assert message in str(error), str(error)
    else:
        raise AssertionError(f"{message}: not raised")


raises(
    TypeError,
    "scale: expected x: float32 or x: float64, found int64",
    my.scale,
    np.arange(3),
    2.0,
)
raises(
    TypeError,
    "distances: b: expected 3 along the axis d, found 4",
    my.distances,
    a,
    np.ones((7, 4)),
)
raises(ValueError, "scale: factor: expected a positive number", my.scale, x, -1.0)
raises(ValueError, "panics panicked: as asked", my.panics, x)
raises(TypeError, "missing a required argument: 'factor'", my.scale, x)
assert my.scale(np.float32(3).reshape(()), 2.0) == 6

# The universal function of an operator that sees whole arrays is an ordinary one.
assert isinstance(my.scale.ufunc, np.ufunc) and my.scale.ufunc.signature is None
assert (my.scale.ufunc.nin, my.scale.ufunc.types) == (2, ["fd->f", "dd->d"])
assert (
    my.scale.ufunc.__name__ == "scale" and "Scales a tensor." in my.scale.ufunc.__doc__
)
scaled = my.scale.ufunc(x.T, 2.0)
np.testing.assert_array_equal(scaled, x.T * 2)
assert scaled.dtype == np.float32 and my.scale.ufunc(3, 2.0) == 6.0
assert my.scale.ufunc([1, 2], 2).dtype == np.float64, "integers are converted safely"
np.testing.assert_array_equal(my.scale.ufunc(x, [1.0, 2.0, 3.0]), x * [1, 2, 3])
np.testing.assert_array_equal(
    my.scale.ufunc(x[::-1, ::2], x[0, 0] + 2), x[::-1, ::2] * 2
)
out = np.zeros((4, 6), np.float32)
assert my.scale.ufunc(x, 3.0, out=out[::2, ::2]).base is out
np.testing.assert_array_equal(out[::2, ::2], x * 3)
assert out[1::2].sum() == 0 == out[:, 1::2].sum()
np.testing.assert_array_equal(
    my.scale.ufunc(x, 2.0, out=np.ones_like(x), where=x > 2), np.where(x > 2, x * 2, 1)
)
# Arguments that share memory: the same elements, shifted ones, and a scalar.
same = np.arange(1000.0)
my.reversed_.ufunc(same, out=same)
np.testing.assert_array_equal(same, -np.arange(1000.0))
shifted = np.arange(1000.0)
my.scale.ufunc(shifted[:-1], 2.0, out=shifted[1:])
np.testing.assert_array_equal(shifted[1:], np.arange(999.0) * 2)
factors = np.arange(5.0)
np.testing.assert_array_equal(
    my.scale.ufunc(factors, factors, out=factors), np.arange(5.0) ** 2
)
np.testing.assert_array_equal(
    my.plus.ufunc.reduce(np.arange(10.0).reshape(2, 5)), [5, 7, 9, 11, 13]
)
np.testing.assert_array_equal(
    my.plus.ufunc.accumulate(np.arange(5.0)), [0, 1, 3, 6, 10]
)
np.testing.assert_array_equal(my.plus.ufunc.outer([1.0, 2], [3.0, 4]), [[4, 5], [5, 6]])

# One with core axes is a generalised one.
distances = my.distances.ufunc
assert distances.signature == "(n,d),(m,d)->(n,m)" and distances.types == [
    "ff->f",
    "dd->d",
]
np.testing.assert_allclose(distances(a, b), expected)
np.testing.assert_allclose(distances(a.astype(np.float32), b), expected, rtol=1e-5)
found = distances(a.swapaxes(-1, -2), b, axes=[(-1, -2), (-2, -1), (-1, -2)])
np.testing.assert_allclose(found, expected.swapaxes(-1, -2))
out = np.empty((5, 4, 7, 2)).transpose(0, 1, 3, 2)
assert distances(a, b, out=out) is out
np.testing.assert_allclose(out, expected)
np.testing.assert_allclose(
    distances(np.broadcast_to(a[0, 0], (3, 2, 3)), b[0][::-1])[1],
    expected[0, 0][:, ::-1],
)
square = np.random.rand(3, 3)
right = my.distances(square, square)
np.testing.assert_allclose(distances(square, square, out=square), right)
several = np.random.rand(4, 6, 3, 3)
right = my.distances(several[:, ::2].copy(), square)
assert distances(several[:, ::2], square, out=several[:, ::2]).base is several
np.testing.assert_allclose(several[:, ::2], right)
turned = np.random.rand(3, 3)
right = my.distances(turned.copy(), turned.T.copy())
np.testing.assert_allclose(distances(turned, turned.T, out=turned), right)
assert (
    distances(a[:0], b).shape == (0, 4, 2, 7)
    and distances(a[..., :0], b[..., :0]).sum() == 0
)
total = my.total.ufunc
assert total.signature == "(n)->()"
np.testing.assert_allclose(total(a, axis=0), a.sum(0))
np.testing.assert_allclose(total(a, axis=-1, keepdims=True), a.sum(-1, keepdims=True))
np.testing.assert_allclose(total(np.float32([[1, 2]]).view(np.complex64)), [1 + 2j])
gapped = np.zeros(6, np.dtype([("a", np.float32), ("b", np.complex64)]))["b"]
raises(
    ValueError,
    "total: x: expected strides of whole elements, found 12 bytes",
    total,
    gapped,
)
raises(ValueError, "core dimension", distances, a, np.ones((7, 4)))
raises(
    TypeError,
    "not supported for the input types",
    distances,
    np.ones((2, 3), complex),
    np.ones((2, 3)),
)
for _ in range(3):
    raises(
        ValueError, "scale: factor: expected a positive number", my.scale.ufunc, x, -1.0
    )
    raises(
        ValueError,
        "panics panicked: as asked",
        my.panics.ufunc,
        np.ones((3, 2, 4), np.float32)[:, :, ::2],
    )
raises(
    ValueError,
    "scale: factor: expected a positive number",
    my.scale.ufunc,
    x,
    [1.0, -1.0, 1.0],
)
assert my.scale.ufunc(x, 2.0).sum() == 30, "an error leaves nothing behind"

# In place, optional, and several results.
changed = np.arange(6.0, dtype=np.float32).reshape(2, 3)
assert my.scale_(changed[:, ::2], 3.0) is None
np.testing.assert_array_equal(changed, [[0, 1, 6], [9, 4, 15]])
raises(TypeError, "read-only", my.scale_, np.broadcast_to(changed, (2, 2, 3)), 3.0)
raises(ValueError, "that is written, found [3]", my.add_, changed[0].copy(), changed)
raises(TypeError, "another argument", my.add_, changed, changed)
repeated = np.lib.stride_tricks.as_strided(changed, (4, 3), (0, 4), writeable=True)
raises(TypeError, "elements that may overlap", my.scale_, repeated, 3.0)
raises(TypeError, "expected float32", my.scale_, repeated, 3.0)
assert my.affine(a, b[:, 0], None).shape == (5, 1, 2, 4)
np.testing.assert_allclose(
    my.affine(a, b[:, 0], bias=b[:, 0, 0]), a @ b[:, 0].T + b[:, 0, 0]
)
raises(
    TypeError,
    "affine: bias: expected 4 along the axis m, found 3",
    my.affine,
    a,
    b[:, 0],
    b[0, 0],
)
low, high = my.extremes(a)
np.testing.assert_array_equal([low, high], [a.min(-1), a.max(-1)])
np.testing.assert_array_equal(my.extremes.ufunc(a, axis=1), [a.min(1), a.max(1)])
message = "neither optional arguments nor arguments in place"
raises(TypeError, message, lambda: my.scale_.ufunc)
raises(TypeError, message, lambda: my.affine.ufunc)

# The GIL is released while a loop runs: the loop waits for a thread of Python.
event = threading.Thread(target=my.arrive)
event.start()
my.wait.ufunc(np.ones(100_000, np.float32))
event.join()


# Each thread has the errors of its own calls.
def scaled(factor):
    try:
        return my.scale.ufunc(x, factor).sum()
    except ValueError:
        return None


with ThreadPoolExecutor(4) as pool:
    found = list(pool.map(scaled, [1.0, -1.0, 2.0] * 200))
assert found == [15, None, 30] * 200
