"""Classes whose metaclass answers for their attributes: none of its code runs in a lookup."""

from __future__ import annotations

import numpy as np
import pytest

import dlbridge
import test_exchange_api as api

ASKED = None


def note(name):
    """Takes note of what is asked for while an import is watched, and is interrupted."""
    if ASKED is not None:
        ASKED.append(name)
        raise KeyboardInterrupt


class Answers(type):
    def __getattribute__(cls, name):
        note(name)
        return type.__getattribute__(cls, name)


def noted(name):
    descriptor = type.__dict__.get(name)

    def get(cls):
        note(name)
        if descriptor is None:
            raise AttributeError
        return descriptor.__get__(cls)

    return property(get)


NAMES = (
    *("__mro__", "__dict__", "__module__", "__dictoffset__"),
    *("__dlpack__", "__dlpack_c_exchange_api__", "__torch_function__"),
)
HasProperties = type("HasProperties", (type,), {name: noted(name) for name in NAMES})


def watched(x):
    """The numbers of an object, and what its metaclass was asked for in the import."""
    global ASKED
    ASKED = []
    try:
        tensor = dlbridge.from_dlpack(x)
        return tensor.tolist(), ASKED
    finally:
        ASKED = None


def exported(self, **keywords):
    return np.array([7.0]).__dlpack__(**keywords)


def published():
    """The attributes of a class with an exchange table, which makes a tensor of four numbers."""
    ours = api.Table.from_address(
        api.pointer(dlbridge.Tensor.__dlpack_c_exchange_api__, api.CAPSULE_NAME)
    )
    kind = api.producer(api.working(ours))
    names = ("keep", "__dlpack_c_exchange_api__", "__dlpack__")
    return {name: kind.__dict__[name] for name in names if name in kind.__dict__}


@pytest.fixture(params=[Answers, HasProperties])
def metaclass(request):
    return request.param


def test_a_class_with_a_method_is_asked_by_it(metaclass):
    x = metaclass("WithMethod", (), {"__dlpack__": exported})()
    for _ in range(2):
        assert watched(x) == ([7], [])


def test_a_class_with_a_table_goes_by_it(metaclass):
    x = metaclass("WithTable", (), published())()
    for _ in range(2):
        assert watched(x) == ([0, 1, 2, 3], [])


def test_a_class_of_arrays_is_asked_by_its_method(metaclass):
    x = np.arange(3.0).view(metaclass("Array", (np.ndarray,), {}))
    for _ in range(2):
        assert watched(x) == ([0, 1, 2], [])


def test_a_mask_is_seen(metaclass):
    kind = metaclass("Masked", (np.ma.MaskedArray,), {})
    x = np.ma.masked_array([1.0, 1e300], mask=[False, True]).view(kind)
    with pytest.raises(BufferError, match="mask"):
        watched(x)


def test_an_attribute_is_not_bound_to_its_class():
    class Bound:
        def __get__(self, instance, owner):
            if instance is None:
                note("__dlpack__")
            return lambda **keywords: exported(instance, **keywords)

    x = type("HasBound", (), {**published(), "__dlpack__": Bound()})()
    # By the table: its class has the method that it had at first sight.
    assert watched(x) == ([0, 1, 2, 3], [])


def test_what_a_key_of_a_class_raises_passes_through():
    class Key(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            note(str(other))
            return str.__eq__(self, other)

    name = "__dlpack_c_exchange_api__"
    x = type("Keyed", (), {Key(name): None, "__dlpack__": exported})()
    with pytest.raises(KeyboardInterrupt):
        watched(x)
    assert dlbridge.from_dlpack(x).tolist() == [7]


@pytest.mark.parametrize("name", ["ndarray", "MaskedArray", "ArrayImpl"])
def test_a_module_whose_name_is_no_utf_8_is_that_of_no_framework(name):
    kind = type(name, (bytearray,), {"__module__": "\ud800"})
    assert dlbridge.from_dlpack(kind(b"ab")).tolist() == [97, 98]
