"""The demo passes on real frameworks and fails if one misbehaves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dlbridge.demo import __main__ as demo
from dlbridge.demo import frameworks, table
from dlbridge.demo.check import check


def test_the_demo_passes_on_real_frameworks(capsys):
    assert demo.main(["--quick"]) == 0
    out = capsys.readouterr().out
    assert "numpy.ndarray" in out
    assert "nothing was copied" in out


@pytest.mark.parametrize("name", frameworks.FRAMEWORKS)
def test_an_address_tells_an_array_from_another_and_from_its_copy(name):
    pytest.importorskip(name, reason=f"{name} is not installed")
    framework = frameworks.FRAMEWORKS[name]()
    one, other = framework.make(1024), framework.make(1024)
    assert framework.pointer(one) == framework.pointer(one)
    assert framework.pointer(one) != framework.pointer(other)
    copy = framework.copy(one)
    assert framework.pointer(copy) != framework.pointer(one)


LIES = {
    "pointer": ({"pointer": lambda array: 1}, "expected Rust to have the array's memory"),
    "a copy comes back": (
        {"back": lambda tensor: np.array(np.from_dlpack(tensor))},
        "exported array to have the same memory",
    ),
    "a change unseen": ({"first": lambda array: 1.0}, "found the old value"),
    "read-only memory that can be written": ({"freeze": lambda array: array}, "read-only"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_framework_that_does_otherwise_makes_the_demo_fail(lie, capsys):
    fields, reason = LIES[lie]
    row = check(dataclasses.replace(frameworks.numpy(), **fields), sizes=[4], budget=0)
    assert demo.report([row], missing=[]) == 1
    assert reason in capsys.readouterr().out


def test_columns_line_up():
    assert table.align([["a", "bb"], ["ccc", "d"]]) == ["a    bb", "---  --", "ccc  d"]


@pytest.mark.parametrize(
    ("nanoseconds", "text"), [(1, "1 ns"), (1500, "1.5 us"), (2e6, "2 ms"), (3e9, "3 s")]
)
def test_durations_read_well(nanoseconds, text):
    assert table.duration(nanoseconds) == text


@pytest.mark.parametrize(("elements", "text"), [(5, "5"), (1 << 10, "1 Ki"), (64 << 20, "64 Mi")])
def test_sizes_read_well(elements, text):
    assert table.size_name(elements) == text
