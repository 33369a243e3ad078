"""Exceptions that refuse nothing leave an import as they are, wherever it asks a producer."""

from __future__ import annotations

import numpy as np
import pytest

import dlbridge
import test_exchange_api as api

PASSING = [KeyboardInterrupt, SystemExit, MemoryError, RecursionError]


def raising(error):
    def function(*_, **__):
        raise error

    return function


class Refuses:
    """A producer whose other protocols are asked after its `__dlpack__`."""

    def __dlpack__(self, **_):
        raise BufferError("refused")


def number(error):
    return type("Number", (), {"__index__": raising(error)})()


def described(**entries):
    interface = {"version": 3, "shape": (2,), "typestr": "<f8", "data": (64, False), **entries}
    return type("Interface", (), {"__array_interface__": interface})()


def on_a_device(**entries):
    interface = {"version": 3, "shape": (2,), "typestr": "<f8", "data": (64, False), **entries}
    return type("Interface", (), {"__cuda_array_interface__": interface})()


def with_dtype(error):
    return type("Dtype", (Refuses,), {"dtype": property(raising(error))})()


def with_buffer(error):
    kind = type("Buffer", (Refuses, bytearray), {"__buffer__": raising(error)})
    try:
        memoryview(kind())
    except error:
        return kind()
    pytest.skip("before Python 3.12, classes in Python have no __buffer__")


def with_device(error):
    def device(_):
        return (number(error), 0)

    return type("Device", (Refuses,), {"__dlpack_device__": device})()


def without_a_copy(error):
    array = np.ones(2)

    def export(_, *, copy=None, **keywords):
        if copy is not None or "dl_device" in keywords:
            raise error
        return array.__dlpack__(**keywords)

    return type("Shared", (), {"__dlpack__": export})()


def with_a_question(error):
    ours = api.Table.from_address(
        api.pointer(dlbridge.Tensor.__dlpack_c_exchange_api__, api.CAPSULE_NAME)
    )
    kind = api.producer(api.working(ours))
    kind.requires_grad = property(raising(error))
    return kind()


IMPORTS = {
    "a dtype": lambda error: dlbridge.from_dlpack(with_dtype(error)),
    "a buffer": lambda error: dlbridge.from_dlpack(with_buffer(error)),
    "a version": lambda error: dlbridge.from_dlpack(described(version=number(error))),
    "a shape": lambda error: dlbridge.from_dlpack(described(shape=(number(error),))),
    "an address": lambda error: dlbridge.from_dlpack(described(data=(number(error), False))),
    "an offset": lambda error: dlbridge.from_dlpack(
        described(data=bytearray(64), offset=number(error))
    ),
    "a stream of an interface": lambda error: dlbridge.from_dlpack(
        on_a_device(stream=number(error))
    ),
    "a stream": lambda error: dlbridge.from_dlpack(np.ones(2), stream=number(error)),
    "a device": lambda error: dlbridge.from_dlpack(with_device(error), stream=1),
    "a copy": lambda error: dlbridge.from_dlpack(without_a_copy(error), device="cuda"),
    "a question": lambda error: dlbridge.from_dlpack(with_a_question(error)),
}


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.__name__)
@pytest.mark.parametrize("run", IMPORTS.values(), ids=IMPORTS)
def test_an_exception_that_refuses_nothing_leaves_an_import(run, error):
    with pytest.raises(error):
        run(error)


@pytest.mark.parametrize("error", [TypeError, ValueError, RuntimeError, BufferError])
def test_the_first_refusal_is_raised(error):
    with pytest.raises(BufferError, match="refused"):
        dlbridge.from_dlpack(with_dtype(error))
