"""Ctrl-C interrupts long loops, and a broadcast tensor takes no longer than its memory does."""

from __future__ import annotations

import signal

import numpy as np
import pytest

import dlbridge

LONG = 1 << 40


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


def test_filling_overlapping_elements_is_interrupted(interrupted):
    windows = strided((1 << 20, 1 << 20), (1, 1))
    interrupted(lambda: dlbridge.fill(windows, 1))


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((LONG,), (0,)), ((2,) * 32, (0,) * 32), ((1 << 20, 3, 1 << 20), (0, 1, 0))],
)
def test_elements_of_stride_0_are_filled_once(shape, strides):
    tensor = strided(shape, strides)
    dlbridge.fill(tensor, 7)
    memory = dlbridge.from_dlpack(tensor[(0,) * (len(shape) - 1)])
    assert memory[0].item() == 7
    filled = strided((5,), (1,))
    dlbridge.fill(filled[1:4], 7)
    assert filled.tolist() == [0, 7, 7, 7, 0]


def test_many_parts_are_filled_whole():
    tensor = dlbridge.zeros((3, 5, 1_000_003), dtype="uint8")
    dlbridge.fill(tensor, 7)
    assert (np.from_dlpack(tensor) == 7).all()
    array = np.zeros((4, 3_000_001), "int16")
    dlbridge.fill(dlbridge.from_dlpack(array[:, ::2]), 7)
    assert (array[:, ::2] == 7).all()
    assert (array[:, 1::2] == 0).all()


@pytest.mark.parametrize("rank", [10, 15])
def test_text_of_many_short_axes_has_no_values(rank):
    text = repr(strided((6,) * rank, (0,) * rank))
    assert text.startswith("dlbridge.Tensor([...], shape=(6, 6, ")
    assert len(repr(strided((6,) * 4, (0,) * 4))) > 6**4
