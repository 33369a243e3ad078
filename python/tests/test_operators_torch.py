"""Operators below PyTorch's autograd, and a first use that is interrupted."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import weakref

import numpy as np
import pytest
from test_operators_processes import run

import operators

pytest.importorskip("dlbridge_example", reason="the example extension is not installed")
torch = pytest.importorskip("torch")
my = operators.load()
HAS_KERNEL = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)
needs_kernel = pytest.mark.skipif(not HAS_KERNEL, reason="autograd is PyTorch's own before 2.14")


class Stop(BaseException):
    """As `KeyboardInterrupt`, which is no `Exception`."""


@needs_kernel
@pytest.mark.parametrize("kind", [Stop, KeyboardInterrupt, MemoryError, ValueError])
def test_an_exception_below_autograd_passes_through(kind):
    raised = kind("as asked")

    def pack(tensor):
        raise raised

    x = torch.ones(3, requires_grad=True)
    for operator in (my.weighted, my.weighted.torch, torch.ops.misused_operators.weighted):
        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x),
            pytest.raises(kind) as found,
        ):
            operator(x, torch.ones(3))
        assert found.value is raised
    assert my.weighted(x, torch.ones(3)).sum() == 3


def test_an_exception_that_python_handled_is_not_kept():
    for guard in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        x = torch.ones(4, device="meta")
        kept = weakref.ref(x)
        with guard(), pytest.raises((RuntimeError, ValueError)):
            my.weighted(x, torch.ones(3, device="meta"))
        del x
        gc.collect()
        assert kept() is None


def test_a_wrong_call_of_a_tensor_that_requires_grad_is_one_line():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError) as found:
        my.weighted(x, torch.ones(2))
    if HAS_KERNEL:
        assert str(found.value).startswith("weighted: weight: expected"), found.value
    assert "\n" not in str(found.value)


def test_checkpoints():
    """The second run of the function ends by an exception of PyTorch's own."""
    weight = torch.ones(3, requires_grad=True)
    x = torch.ones(3, requires_grad=True)

    def function(x):
        first = my.weighted(x, weight)
        return my.weighted(first.sin(), first)

    function(x).sum().backward()
    expected, weight.grad, x.grad = (weight.grad, x.grad), None, None
    checkpoint = torch.utils.checkpoint.checkpoint
    for early_stop in (True, False):
        with torch.utils.checkpoint.set_checkpoint_early_stop(early_stop):
            checkpoint(function, x, use_reentrant=False).sum().backward()
        torch.testing.assert_close((weight.grad, x.grad), expected)
        weight.grad = x.grad = None


def test_a_change_in_inference_mode_is_counted():
    for guard in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        x, weight = torch.ones(3), torch.ones(3, requires_grad=True)
        total = (x * weight).sum()
        with guard():
            my.add_(torch.ones(3), x)
        assert x._version == 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            total.backward()
    with torch.inference_mode():
        inner = torch.ones(3)
        my.add_(torch.ones(3), inner)
    assert inner.tolist() == [2, 2, 2]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@needs_kernel
def test_a_first_use_in_inference_mode_decides_nothing_for_later_ones():
    run("""
        import torch
        my = operators.load()
        with torch.inference_mode():
            my.weighted(torch.ones(3), torch.ones(3))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(torch.ones(3), torch.ones(3))
            try:
                my.weighted(dual, torch.ones(3))
            except RuntimeError as error:
                assert "no derivative in forward mode" in str(error), error
            else:
                raise AssertionError("a tangent of zero")
    """)


def test_forward_mode_is_an_error():
    """Not a tangent of zero."""
    ones = torch.ones(3)
    functions = [my.weighted, my.weighted.torch] if HAS_KERNEL else []
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(ones, ones)
        for function in functions:
            for arguments in [(dual, ones), (ones, dual), (dual, dual)]:
                with pytest.raises(
                    RuntimeError, match="weighted has no derivative in forward mode"
                ):
                    function(*arguments)
            assert function(ones, ones).tolist() == [1, 1, 1]
        with pytest.raises(
            RuntimeError, match="add_ changes a tensor in place and has no derivative"
        ):
            my.add_(ones, dual)
    for function in functions:
        with pytest.raises(RuntimeError, match=r"forward mode|functorch"):
            torch.func.jvp(lambda x, function=function: function(x, ones), (ones,), (ones,))
    assert my.weighted(ones, ones).tolist() == [1, 1, 1]


def test_an_error_of_a_universal_function_keeps_no_memory():
    x = np.ones(3, np.float32)

    def fail():
        try:
            my.fail.ufunc(x, 0)
        except ValueError as error:
            assert "as asked" in str(error)

    for _ in range(100):
        fail()
    before = sys.getallocatedblocks()
    for _ in range(1000):
        fail()
    assert sys.getallocatedblocks() - before < 100


@pytest.mark.parametrize("framework", ["torch", "jax", "ufunc"])
def test_a_first_use_that_is_interrupted_is_taken_up_again(framework):
    if framework == "jax":
        pytest.importorskip("jax")
    run(f"""
        my = operators.load()
        import {framework.replace("ufunc", "numpy")}

        def interrupted(line):
            left = line

            def trace(frame, event, argument):
                nonlocal left
                if not frame.f_code.co_filename.startswith("dlbridge_operators"):
                    return None
                left -= event == "line"
                if left == 0:
                    raise KeyboardInterrupt
                return trace

            sys.settrace(trace)
            try:
                return getattr(operator, "{framework}")
            except KeyboardInterrupt:
                return None
            finally:
                sys.settrace(None)

        for operator in (my.weighted, my.add_, my.extremes, my.same):
            if "{framework}" == "ufunc" and operator is my.add_:
                continue
            count = 1
            while not interrupted(count):
                count += 1
            assert count > 3
        x = np.ones(3, np.float32)
        if "{framework}" == "torch":
            x = torch.ones(3)
        elif "{framework}" == "jax":
            x = jax.numpy.ones(3)
        assert my.weighted(x, x).sum() == my.same(x).sum() == 3
        if "{framework}" == "torch":
            w = torch.ones(3, requires_grad=True)
            my.weighted(x, w).sum().backward()
            assert w.grad.sum() == 3
            my.add_(torch.ones(3), x)
            assert x._version == 1 and x.sum() == 6
            assert torch.vmap(my.same.torch)(torch.ones(2, 3)).shape == (2, 3)
    """)


def test_a_module_that_holds_an_operator_is_copied_and_saved(tmp_path):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.operator, self.weight = my.weighted, torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.operator(x, self.weight)

    layer = Layer()
    for copied in (copy.copy(layer), copy.deepcopy(layer)):
        assert copied.operator is my.weighted
    assert pickle.loads(pickle.dumps(my.weighted)) is my.weighted
    torch.save({"operator": my.weighted}, tmp_path / "saved.pt")
    loaded = torch.load(tmp_path / "saved.pt", weights_only=False)
    assert loaded["operator"] is my.weighted


def test_arrays_of_two_frameworks_are_one_line():
    x, y = torch.ones(3), np.ones(3, np.float32)
    expected = (
        r"^weighted: weight: expected a torch.Tensor as the other arguments are, "
        r"found numpy.ndarray; pass torch.as_tensor\(weight\)$"
    )
    with pytest.raises(TypeError, match=expected):
        my.weighted(x, y)
    with pytest.raises(TypeError, match=r"^weighted: x: expected a torch.Tensor"):
        my.weighted(y, x)
    with pytest.raises(RuntimeError, match=r"^weighted: weight: expected"):
        my.weighted(x, torch.ones(2))


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.asarray, r'convert with x.astype\("int32"\)'),
        (torch.tensor, r"convert with x.to\(torch.int32\)"),
    ],
)
def test_a_wrong_dtype_has_the_words_of_the_framework(array, expected):
    with pytest.raises(
        (TypeError, RuntimeError), match=rf"^same: expected x: int32 or .*{expected}$"
    ):
        my.same(array([1j]))


def test_wrong_arguments_name_the_operator():
    x = np.ones(3, np.float32)
    for arguments, keywords, message in [
        ((x,), {}, "times: missing a required argument: 'factor'"),
        ((x, 1.0, 1, True, 2), {}, "times: expected 4 arguments, found 5"),
        ((x, 1.0), {"factor": 1.0}, "times: missing a required argument: 'count'"),
        ((x, 1.0, 1, True), {"x": x}, "times: got several values for argument 'x'"),
        ((x, 1.0, 1, True), {"y": x}, "times: got an unexpected argument 'y'"),
    ]:
        with pytest.raises(TypeError, match=message):
            my.times(*arguments, **keywords)
    assert my.times(x, count=2, negate=False, factor=1.0).sum() == 6
