"""Ctrl-C interrupts long loops, and a broadcast tensor takes no longer than its memory does."""

from __future__ import annotations

import contextlib
import signal
import weakref

import numpy as np
import pytest

import dlbridge


def strided(shape, strides):
    memory = np.zeros(1 << 21, "uint8")
    return dlbridge.from_dlpack(np.lib.stride_tricks.as_strided(memory, shape, strides))


@pytest.fixture
def interrupted():
    """Runs a function that takes hours, and interrupts it after half a second."""

    def interrupt(*_):
        raise KeyboardInterrupt

    def run(function):
        with pytest.raises(KeyboardInterrupt):
            function()
        signal.setitimer(signal.ITIMER_REAL, 0)

    if not hasattr(signal, "setitimer"):
        pytest.skip("no timer")
    before = signal.signal(signal.SIGALRM, interrupt)
    # Again and again: a collection of garbage runs `gc.callbacks`, of which JAX has one. CPython
    # reports what a signal handler raises in there to `sys.unraisablehook` only.
    signal.setitimer(signal.ITIMER_REAL, 0.5, 2)
    yield run
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_list_is_interrupted(interrupted):
    interrupted(strided((1 << 20, 1 << 20), (0, 0)).tolist)


def test_a_list_of_short_lists_is_interrupted(interrupted):
    interrupted(strided((2,) * 30, (0,) * 30).tolist)


class Memory(bytearray):
    """Memory that a weak reference can watch."""


class Chunks:
    """A column whose chunks come from one stream."""

    def __init__(self, capsule):
        self.capsules = [capsule]

    def __arrow_c_stream__(self, requested_schema=None):
        return self.capsules.pop()


@pytest.mark.parametrize("raises", [False, True])
def test_a_copy_of_chunks_handles_signals(raises):
    """A query of minutes, which produces chunk by chunk, saw Ctrl-C at its end."""
    pa = pytest.importorskip("pyarrow")
    if not hasattr(signal, "setitimer"):
        pytest.skip("no timer")
    memory = Memory(64)
    column = pa.Array.from_buffers(pa.uint8(), 64, [None, pa.py_buffer(memory)])
    chunks = Chunks(pa.chunked_array([column] * 200_000).__arrow_c_stream__())
    is_used, memory, column = weakref.ref(memory), None, None
    seen = []

    def handle(_, frame):
        if frame.f_code is not Chunks.__arrow_c_stream__.__code__:
            seen.append(is_used() is not None)
            if raises and seen[-1]:
                raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        with pytest.raises(KeyboardInterrupt) if raises else contextlib.nullcontext():
            dlbridge.from_dlpack(chunks, copy=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    # While the stream was there, not after the copy.
    assert any(seen)
    assert is_used() is None


@pytest.mark.parametrize("rank", [10, 15])
def test_text_of_many_short_axes_has_no_values(rank):
    text = repr(strided((6,) * rank, (0,) * rank))
    assert text.startswith("dlbridge.Tensor([...], shape=(6, 6, ")
    assert len(repr(strided((6,) * 4, (0,) * 4))) > 6**4
