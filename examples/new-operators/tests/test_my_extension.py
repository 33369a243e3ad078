"""Each framework fits points to a target: the nearest distances are the loss."""

import my_extension
import numpy as np
import pytest

rng = np.random.default_rng(1)
POINTS = rng.normal(size=(8, 2)).astype(np.float32)
TARGET = rng.normal(size=(16, 2)).astype(np.float32)
EXPECTED = ((POINTS[:, None] - TARGET) ** 2).sum(-1)


def test_pytorch_trains_through_the_compiled_operator() -> None:
    torch = pytest.importorskip("torch")
    target = torch.from_numpy(TARGET)
    points = torch.from_numpy(POINTS.copy()).requires_grad_()
    # Outside of the compiled function, since PyTorch was imported after the extension.
    distances = my_extension.distances.torch

    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss(points):
        return distances(points, target).amin(0).sum()

    optimizer = torch.optim.SGD([points], lr=0.05)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        value = loss(points)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[0] == pytest.approx(EXPECTED.min(0).sum(), rel=1e-5)
    assert losses[-1] < losses[0] / 2


def test_jax_trains_through_the_jitted_operator() -> None:
    jax = pytest.importorskip("jax")

    @jax.jit
    def step(points):
        loss = lambda points: my_extension.distances(points, TARGET).min(0).sum()
        value, gradient = jax.value_and_grad(loss)(points)
        return value, points - 0.05 * gradient

    points, losses = jax.numpy.asarray(POINTS), []
    for _ in range(20):
        value, points = step(points)
        losses.append(float(value))
    assert losses[-1] < losses[0] / 2
    batches = jax.vmap(my_extension.distances, (0, None))(points[None], TARGET)
    assert batches.shape == (1, 8, 16)


def test_numpy_calls_the_universal_function() -> None:
    distances = my_extension.distances.ufunc
    np.testing.assert_allclose(distances(POINTS, TARGET), EXPECTED, rtol=1e-5)
    out = np.empty((2, 8, 16), np.float32)
    assert distances(np.stack([POINTS, POINTS]), TARGET, out=out) is out
    np.testing.assert_allclose(out[1], EXPECTED, rtol=1e-5)


def test_another_number_of_coordinates_is_refused() -> None:
    with pytest.raises(TypeError, match="expected 2 along the axis d, found 3"):
        my_extension.distances(POINTS, np.zeros((4, 3), np.float32))
