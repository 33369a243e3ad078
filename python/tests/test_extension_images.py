"""Pictures and rows in the example extension: new arrays, in place, parts, all cores."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from test_extension import example

FRAMEWORKS = pytest.mark.parametrize("name", ["numpy", "torch", "jax.numpy"])


def load(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def picture() -> np.ndarray:
    return np.arange(24, dtype="uint8").reshape(2, 4, 3) * 10


@FRAMEWORKS
def test_a_picture_becomes_a_normalised_array_of_its_type(name):
    source = picture()
    image = load(name).asarray(source)
    planes = example.to_planes(image)
    assert type(planes) is type(image)
    np.testing.assert_array_equal(
        np.asarray(planes), source.transpose(2, 0, 1).astype("float32") / np.float32(255)
    )


def test_a_picture_of_other_extents_is_refused():
    for wrong in (np.zeros((3, 2, 4), "uint8"), np.zeros((3,), "uint8")):
        for function in (example.to_planes, lambda image: example.brighten(image, 1)):
            with pytest.raises(TypeError, match=r"expected uint8\[\?, \?, 3\] on the host"):
                function(wrong)


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_a_picture_is_changed_in_place_if_it_may_be_written(name):
    source = picture()
    image = load(name).asarray(source)
    example.brighten(image[:, ::-1] if name == "numpy" else image, 100)
    expected = np.minimum(picture().astype(int) + 100, 255)
    np.testing.assert_array_equal(np.asarray(image), expected)
    fixed = picture()
    fixed.flags.writeable = False
    with pytest.raises(TypeError, match=r"writable, found .*read-only"):
        example.brighten(fixed, 1)


def test_rows_of_an_image_are_an_image_over_the_same_memory():
    image = example.Image(4, 2)
    rows = image.rows(1, 3)
    assert (rows.height, rows.width, rows.data_ptr) == (2, 2, image.data_ptr + 6)
    np.from_dlpack(rows)[...] = 255
    assert np.from_dlpack(image)[:, 0, 0].tolist() == [0, 255, 255, 0]
    with pytest.raises(ValueError, match=r"expected a range within 0\.\.4 on axis 0"):
        image.rows(1, 5)

    pixels = np.zeros((4, 2, 3), "uint8").view(type("Watched", (np.ndarray,), {}))
    alive = weakref.ref(pixels)
    part = example.Image.over_pixels(pixels).rows(0, 1)
    del pixels
    gc.collect()
    assert alive() is not None
    del part
    gc.collect()
    assert alive() is None


@FRAMEWORKS
def test_rows_are_computed_with_on_all_cores(name):
    source = np.random.default_rng(3).normal(size=(300, 50)).astype("float32")
    array = load(name).asarray(source)
    result = example.softmax(array[::2, 1::3])
    assert type(result) is type(array)
    powers = np.exp(source[::2, 1::3].astype("float64"))
    np.testing.assert_allclose(np.asarray(result), powers / powers.sum(1, keepdims=True), rtol=1e-5)
