import my_extension
import numpy as np
import pytest


def test_norm() -> None:
    assert my_extension.norm(np.array([3, 4], np.float32)) == 5


def test_other_dtypes_are_rejected() -> None:
    with pytest.raises(TypeError, match="expected float32"):
        my_extension.norm(np.array([3, 4]))


def test_scale_returns_the_callers_array_type() -> None:
    scaled = my_extension.scale(np.ones((2, 3), np.float32), 2)
    assert isinstance(scaled, np.ndarray)
    np.testing.assert_array_equal(scaled, np.full((2, 3), 2, np.float32))
