"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import dlbridge
import dlbridge._inspect

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("module", [dlbridge, dlbridge._inspect], ids=lambda m: m.__name__)
def test_the_examples_of_a_module_work(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


def test_the_readme_has_examples():
    assert BLOCKS


@pytest.mark.parametrize("block", BLOCKS, ids=[f"block {i}" for i in range(1, len(BLOCKS) + 1)])
def test_an_example_of_the_readme_works(block, capsys):
    for name in re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE):
        pytest.importorskip(name, reason=f"{name} is not installed")
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    if "print(" in block:
        assert capsys.readouterr().out


def test_everything_public_is_documented():
    for name in dlbridge.__all__:
        thing = getattr(dlbridge, name)
        if callable(thing):
            assert (thing.__doc__ or "").strip(), name


def test_every_attribute_of_a_tensor_is_documented():
    for name, thing in vars(dlbridge.Tensor).items():
        if not name.startswith("_"):
            assert (thing.__doc__ or "").strip(), name


def test_all_public_names_exist_in_order():
    assert dlbridge.__all__ == sorted(dlbridge.__all__)
    assert len(dlbridge.__all__) == len(set(dlbridge.__all__))
