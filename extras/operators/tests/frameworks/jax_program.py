"""`my` has the operators."""
# ruff: noqa: F821

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

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
    TypeError,
    "expected x: float32 or x: float64, found int32; convert with x.astype(jnp.float32)",
    my.scale,
    jnp.arange(3),
    2.0,
)
raises(
    ValueError,
    "distances: b: expected 3 along d, found 4",
    my.distances,
    x,
    jnp.ones((7, 4)),
)
assert my.scale(jnp.ones((2, 0)), 2.0).shape == (2, 0)
# Older ones have it in `jax.experimental`.
x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
with x64(True):
    found = my.scale(jnp.ones(3, "float64"), 0.1)
    assert found.dtype == "float64" and found[0] == 0.1

# An argument in place is a new array: those of JAX are constant.
before, others = jnp.ones((2, 3)), jnp.arange(6.0).reshape(2, 3)
np.testing.assert_array_equal(my.add_(before, others), 1 + others)
np.testing.assert_array_equal(before, jnp.ones((2, 3)))
changed = jax.jit(lambda x, y: my.scale_(my.add_(x + 0, y), 2.0), donate_argnums=0)
np.testing.assert_array_equal(changed(before, others), 2 * (1 + others))
np.testing.assert_array_equal(
    jax.vmap(my.add_, (None, 0))(others[0], others), others[0] + others
)
raises(
    jax.errors.JaxRuntimeError,
    "that is written, found [1, 3]",
    my.add_,
    others[0],
    others,
)

w, bias = others + 0.5, jnp.arange(2.0)
np.testing.assert_allclose(my.affine(others, w, bias), others @ w.T + bias)
np.testing.assert_allclose(
    jax.jit(lambda x: my.affine(x, w, None))(others), others @ w.T
)
np.testing.assert_allclose(
    jax.vmap(my.affine, (0, None, None))(others[:, None], w, None)[:, 0], others @ w.T
)
for argument, of_one in enumerate((w.sum(0), others.sum(0), 2.0)):
    found = jax.grad(lambda *x: my.affine(*x).sum(), argument)(others, w, bias)
    np.testing.assert_allclose(found, jnp.broadcast_to(of_one, found.shape), rtol=1e-6)
found = jax.grad(lambda x: my.affine(x, w, None).sum())(others)
np.testing.assert_allclose(found, jnp.stack([w.sum(0)] * 2))
index = jnp.array([1, 0, 1])
np.testing.assert_array_equal(
    jax.grad(lambda x: my.take(x, index).sum())(others), [[1] * 3, [2] * 3]
)
low, high = jax.jit(my.extremes)(others)
np.testing.assert_array_equal([low, high], [others.min(-1), others.max(-1)])

# On several devices: each calls the function with its part.
devices = jax.devices("cpu")
assert len(devices) == 4, "the environment of the test asks for four"
mesh = Mesh(np.array(devices), ("rows",))
points = jax.random.uniform(jax.random.key(3), (8, 5, 3))


def on_several_devices():
    sharded = jax.shard_map(
        my.distances, mesh=mesh, in_specs=(P("rows"), P()), out_specs=P("rows")
    )
    found = jax.jit(sharded)(
        jax.device_put(points, NamedSharding(mesh, P("rows"))), points[0]
    )
    assert len(found.sharding.device_set) == 4
    np.testing.assert_allclose(found, plain(points, points[0]), rtol=1e-5)
    center = points[0]
    loss = lambda x, y: jax.shard_map(
        lambda x, y: jax.lax.psum(my.distances(x, y).sum(), "rows"),
        mesh=mesh,
        in_specs=(P("rows"), P()),
        out_specs=P(),
    )(x, y)
    for argument in (0, 1):
        np.testing.assert_allclose(
            jax.grad(loss, argument)(points, center),
            jax.grad(lambda x, y: plain(x, y).sum(), argument)(points, center),
            rtol=1e-4,
        )


if hasattr(jax, "shard_map"):
    on_several_devices()
else:
    print("skipped: shard_map needs JAX 0.6 or newer")

# JAX's plugin for CUDA asks for the handlers of this platform when it is loaded.
from jaxlib import xla_client

found = []
xla_client.register_custom_call_handler("CUDA", lambda name, *_: found.append(name))
assert "my_jax.scale" in found, found

# A gradient that needs the result.
np.testing.assert_allclose(my.softmax(a), jax.nn.softmax(a), rtol=1e-5)
weights = jnp.arange(a.size, dtype=a.dtype).reshape(a.shape)
of_softmax = jax.grad(lambda a: (my.softmax(a) * weights).sum())(a)
plainly = jax.grad(lambda a: (jax.nn.softmax(a) * weights).sum())(a)
np.testing.assert_allclose(of_softmax, plainly, rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(my.affine.jax(a, a), my.affine(a, a, None))
