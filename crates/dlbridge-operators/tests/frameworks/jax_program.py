"""`my` has the operators."""
# ruff: noqa: F821

import jax
import jax.numpy as jnp
import numpy as np

x = jnp.arange(6.0).reshape(2, 3)
np.testing.assert_array_equal(my.scale(x, 2.0), x * 2)
np.testing.assert_array_equal(jax.jit(lambda x: my.scale(x, 2.0) + 1)(x), x * 2 + 1)
a, b = (
    jax.random.uniform(jax.random.key(1), (2, 5, 1, 2, 3))[0],
    jax.random.uniform(jax.random.key(2), (4, 7, 3)),
)
expected = ((a[..., :, None, :] - b[..., None, :, :]) ** 2).sum(-1)
np.testing.assert_allclose(jax.jit(my.distances)(a, b), expected, rtol=1e-5)


def plain(a, b):
    return ((a[..., :, None, :] - b[..., None, :, :]) ** 2).sum(-1)


for argument in (0, 1):
    found = jax.grad(lambda a, b: my.scale(my.distances(a, b), 3.0).sum(), argument)(
        a, b
    )
    np.testing.assert_allclose(
        found, jax.grad(lambda a, b: 3 * plain(a, b).sum(), argument)(a, b), rtol=1e-4
    )

p, q = a[:, 0], jnp.stack([b[0]] * 5)
np.testing.assert_allclose(jax.vmap(my.distances)(p, q), plain(p, q), rtol=1e-5)
np.testing.assert_allclose(
    jax.vmap(my.distances, (None, 0))(p[0], q), plain(p[0], q), rtol=1e-5
)
np.testing.assert_allclose(
    jax.vmap(my.distances, (0, None))(p, q), plain(p[:, None], q), rtol=1e-5
)
np.testing.assert_allclose(
    jax.vmap(jax.grad(lambda a: my.distances(a, b[0]).sum()))(p),
    jax.vmap(jax.grad(lambda a: plain(a, b[0]).sum()))(p),
    rtol=1e-4,
)


def raises(kind, message, function, *arguments):
    try:
        jax.block_until_ready(function(*arguments))
    except kind as error:
        assert message in str(error), str(error)
    else:
        raise AssertionError(f"{message}: not raised")


raises(
    jax.errors.JaxRuntimeError,
    "scale: factor: expected a positive number",
    my.scale,
    x,
    -1.0,
)
raises(jax.errors.JaxRuntimeError, "panics panicked: as asked", my.panics, x)
raises(
    TypeError, "expected float32 or float64, found int32", my.scale, jnp.arange(3), 2.0
)
raises(
    ValueError,
    "distances: b: expected 3 along d, found 4",
    my.distances,
    x,
    jnp.ones((7, 4)),
)
assert my.scale(jnp.ones((2, 0)), 2.0).shape == (2, 0)
with jax.enable_x64(True):
    found = my.scale(jnp.ones(3, "float64"), 0.1)
    assert found.dtype == "float64" and found[0] == 0.1
