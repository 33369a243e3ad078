"""Classes of the native module that Python code cannot change."""

from __future__ import annotations

import pytest

import dlbridge

CLASSES = [
    dlbridge.Tensor,
    dlbridge.Channel,
    dlbridge.Loan,
    dlbridge.Message,
    dlbridge.SealedTensors,
    dlbridge.UnsealedTensors,
    type(iter(dlbridge.zeros(1))),
]


@pytest.mark.parametrize("kind", CLASSES)
def test_no_object_is_made_that_rust_has_not_filled_in(kind):
    """A `__new__` of Python led to `object.__new__(kind)`, whose first method ended the process."""
    with pytest.raises(TypeError, match="immutable type"):
        kind.__new__ = staticmethod(lambda cls: object.__new__(cls))
    with pytest.raises(TypeError):
        object.__new__(kind)
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Derived", (kind,), {})


def test_the_class_of_an_extension_is_immutable_as_well():
    """Code has it from the first object on."""
    example = pytest.importorskip("dlbridge_example", reason="the extension is not installed")
    kind = type(example.to_planes(example.Image(2, 3)))
    assert kind is not dlbridge.Tensor
    with pytest.raises(TypeError, match="immutable type"):
        kind.__new__ = staticmethod(lambda cls: object.__new__(cls))
