"""The methods of PEP 688 (`__buffer__`, `__release_buffer__`), which Python code may replace."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import weakref
from unittest import mock

import numpy as np
import pytest

import dlbridge
from values import arange

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="PEP 688 is of Python 3.12")


def image() -> object:
    example = pytest.importorskip("dlbridge_example", reason="the example is not installed")
    return example.Image(2, 3)


MAKERS = [lambda: arange(3, dtype="uint8"), image]
IDS = ["dlbridge.Tensor", "a user's class"]


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_a_method_that_is_patched_and_put_back_works_as_before(make):
    made = make()
    kind, seen = type(made), []
    method = kind.__buffer__
    before = bytes(made)

    def counted(self, flags):
        seen.append(flags)
        return method(self, flags)

    with mock.patch.object(kind, "__buffer__", counted):
        assert bytes(made) == before
    assert seen
    # On a thread with little stack, where a recursion without end is found soon.
    found = []
    thread = threading.Thread(target=lambda: found.append(bytes(made)))
    thread.start()
    thread.join()
    assert found == [before]
    assert np.asarray(made).tobytes() == before


@pytest.mark.parametrize("place", ["Tensor", "Image"])
def test_a_method_that_is_put_back_does_not_call_itself(place):
    program = f"""
        import threading
        import dlbridge
        if {place!r} == "Tensor":
            made = dlbridge.zeros(3, dtype="uint8")
        else:
            import dlbridge_example
            made = dlbridge_example.Image(1, 1)
        kind = type(made)
        kind.__buffer__ = kind.__buffer__
        thread = threading.Thread(target=lambda: print(bytes(made)))
        thread.start()
        thread.join()
    """
    if place == "Image":
        image()
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, f"{bytes(3)}\n"), ended.stderr[-2000:]


def array_and_tensor() -> tuple[np.ndarray, object]:
    array = np.zeros((2, 3, 3), dtype="uint8")
    return array, dlbridge.from_dlpack(array)


def array_and_image() -> tuple[np.ndarray, object]:
    example = pytest.importorskip("dlbridge_example", reason="the example is not installed")
    array = np.zeros((2, 3, 3), dtype="uint8")
    return array, example.Image.over_pixels(array)


@pytest.mark.parametrize("make", [array_and_tensor, array_and_image], ids=IDS)
def test_a_release_method_of_python_leaks_nothing(make):
    array, made = make()
    kind, released, kept = type(made), [], weakref.ref(array)
    del array
    kind.__release_buffer__, before = (
        lambda self, view: released.append(view.nbytes),
        kind.__dict__.get("__release_buffer__"),
    )
    try:
        memoryview(made).release()
    finally:
        if before is None:
            del kind.__release_buffer__
        else:
            kind.__release_buffer__ = before
    assert released == [18]
    memoryview(made).release()
    assert kept() is not None
    del made
    gc.collect()
    assert kept() is None, "a buffer still keeps the memory"
