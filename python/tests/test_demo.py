"""The demo passes on real frameworks and fails if one misbehaves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dlbridge import demo


def test_the_demo_passes_on_real_frameworks(capsys):
    assert demo.main([]) == 0
    out = capsys.readouterr().out
    assert "numpy.ndarray" in out
    assert "nothing was copied" in out


LIES = {
    "an address": ({"pointer": lambda array: 1}, "expected the array's memory and values in Rust"),
    "a value": (
        {"make": lambda values: np.array([0, *values[:-1]], "float32")},
        "expected the array's memory and values in Rust",
    ),
    "a copy comes back": (
        {"back": lambda tensor: np.array(np.from_dlpack(tensor))},
        "expected the same memory and values in the exported array",
    ),
    "a write unseen": ({"values": lambda array: demo.VALUES}, "expected the write to show"),
    "read-only memory that can be written": ({"freeze": lambda array: array}, "read-only"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_framework_that_does_otherwise_makes_the_demo_fail(lie, capsys):
    fields, reason = LIES[lie]
    assert demo.report([demo.check(dataclasses.replace(demo.numpy(), **fields))]) == 1
    assert reason in capsys.readouterr().out
