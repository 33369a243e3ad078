"""What the package's own documentation shows is what happens. Pages belong to `test_guide`."""

from __future__ import annotations

import doctest
import sys

import pytest

import dlbridge
import dlbridge._inspect


@pytest.mark.parametrize("module", [dlbridge, dlbridge._inspect], ids=lambda m: m.__name__)
def test_the_examples_of_a_module_work(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


def test_the_examples_of_native_functions_work():
    names = [name for name in dlbridge.__all__ if ">>>" in (getattr(dlbridge, name).__doc__ or "")]
    assert {"empty_sealed", "open_sealed", "seal"} <= set(names)
    if sys.platform != "linux":
        pytest.skip("sealed memory is for Linux")
    runner = doctest.DocTestRunner()
    for name in names:
        text = getattr(dlbridge, name).__doc__
        runner.run(doctest.DocTestParser().get_doctest(text, {}, name, None, 0))
    assert runner.summarize().failed == 0


def test_everything_public_is_documented():
    for name in dlbridge.__all__:
        thing = getattr(dlbridge, name)
        if callable(thing):
            assert (thing.__doc__ or "").strip(), name


@pytest.mark.parametrize(
    "kind", [dlbridge.Tensor, dlbridge.SealedTensors, dlbridge.UnsealedTensors]
)
def test_every_attribute_of_a_class_is_documented(kind):
    for name, thing in vars(kind).items():
        if not name.startswith("_"):
            assert (thing.__doc__ or "").strip(), name


def test_all_public_names_exist_once():
    assert all(hasattr(dlbridge, name) for name in dlbridge.__all__)
    assert len(dlbridge.__all__) == len(set(dlbridge.__all__))
