"""`my` has the operators."""
# ruff: noqa: F821

import inspect

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
