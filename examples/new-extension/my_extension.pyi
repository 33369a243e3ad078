"""Functions over any framework's arrays."""

from typing import Any, TypeVar

_Array = TypeVar("_Array")

def norm(x: Any) -> float:
    """The length of a vector. Anything but a float32 vector in host memory raises `TypeError`."""

def scale(x: _Array, factor: float) -> _Array:
    """A new array of the type of `x`: `factor` times its values, without a gradient."""
