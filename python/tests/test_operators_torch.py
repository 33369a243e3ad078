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


def raising(error):
    """A dispatch mode and a subclass of tensors, which raise an exception for these operators."""
    from torch.utils._python_dispatch import TorchDispatchMode

    def run(function, types, arguments, keywords):
        if "misused_operators" in str(function):
            raise error
        return function(*arguments, **keywords or {})

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, *call):
            return run(*call)

    class Subclass(torch.Tensor):
        __torch_dispatch__ = classmethod(lambda _, *call: run(*call))

        @staticmethod
        def __new__(cls, tensor):
            return torch.Tensor._make_wrapper_subclass(cls, tensor.shape, dtype=tensor.dtype)

    return Mode, Subclass


@needs_kernel
@pytest.mark.parametrize("needs_grad", [False, True])
def test_a_mode_that_returns_fewer_results_is_an_error(needs_grad):
    # An argument that was freed stood in the place of the missing one.
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments, keywords=None):
            return (torch.zeros(()),)

    x = torch.ones(3, dtype=torch.float64, requires_grad=needs_grad)
    with Mode(), pytest.raises(TypeError, match="extremes: expected 2 results, found 1"):
        my.extremes(x)


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("kind", [Stop, KeyboardInterrupt, MemoryError, ValueError])
def test_an_exception_of_a_mode_or_a_subclass_passes_through(kind, needs_grad):
    raised = kind("as asked")
    mode, subclass = raising(raised)
    x = torch.ones(3, requires_grad=needs_grad)
    for operator in (my.weighted, my.weighted.torch, torch.ops.misused_operators.weighted):
        with mode(), pytest.raises(kind) as found:
            operator(x, torch.ones(3))
        assert found.value is raised
        with pytest.raises(kind) as found:
            operator(x, subclass(torch.ones(3)))
        assert found.value is raised
    assert my.weighted(x, torch.ones(3)).sum() == 3


def test_an_exception_that_a_mode_handled_does_not_replace_the_one_that_fails():
    from torch.utils._python_dispatch import TorchDispatchMode

    meta = torch.ones(4, device="meta")

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            with pytest.raises((RuntimeError, ValueError), match="expected 4 or 1"):
                my.weighted(meta, torch.ones(3, device="meta"))
            return function(*arguments, **keywords or {})

    for needs_grad in (False, True):
        with Mode(), pytest.raises(RuntimeError, match="as asked, with"):
            my.fail(torch.ones(3, requires_grad=needs_grad), 0)


def test_an_interrupt_while_a_graph_is_made_arrives():
    """At each event of Python below a call, the first time."""
    run("""
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx
        my = operators.load()

        def function(x, weight):
            return my.weighted(x, weight)

        def interrupted(left, arguments):
            fired = False

            def trace(frame, event, argument):
                nonlocal left, fired
                left -= 1
                if left == 0:
                    fired = True
                    raise KeyboardInterrupt
                return trace if left > 0 else None

            def call(x, weight):
                sys.settrace(trace)
                try:
                    return function(x, weight)
                finally:
                    sys.settrace(None)

            try:
                make_fx(call, tracing_mode="fake")(*arguments)
            except KeyboardInterrupt:
                assert fired
                return True
            assert not fired, left
            return False

        lost = []
        for needs_grad in (False, True):
            arguments = torch.ones(3), torch.ones(3, requires_grad=needs_grad)
            make_fx(function, tracing_mode="fake")(*arguments)
            count = 1
            while True:
                try:
                    if not interrupted(count, arguments):
                        break
                except Exception as error:
                    lost.append(repr(error))
                count += 1 + count // 6
            assert count > 200, count
        assert not lost, (len(lost), lost[:3])
    """)


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


def test_two_arguments_of_one_size_that_depends_on_data_are_compiled():
    def function(x):
        some = x[x > 0]
        weight = some * 2
        return my.weighted(some, weight) + my.weighted(some.sum(), weight)

    x = torch.tensor([1.0, -1.0, 2.0])
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), function(x))
        own, other = (x.clone().requires_grad_() for _ in range(2))
        compiled(own).sum().backward()
        function(other).sum().backward()
        torch.testing.assert_close(own.grad, other.grad)


def test_the_python_half_is_imported_by_its_name():
    """As Dynamo does for the globals of a function that it traces."""
    import importlib

    for function in (type(my.weighted).__call__, type(my.weighted).torch.make):
        module = importlib.import_module(function.__globals__["__name__"])
        assert vars(module) is function.__globals__
        assert module.__name__.split(".")[-1].startswith("dlbridge_operators_")


def test_a_compiler_makes_an_operator_without_arguments():
    """Dynamo before PyTorch 2.15 has no constant for an operator."""
    maker = my.weighted._makers["torch"]
    assert maker._dynamo_marked_constant
    assert maker() is None


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
                # It named `torch.func.vjp`, which takes no operator.
                with pytest.raises(
                    RuntimeError, match=r"no derivative in forward mode: use .*\.autograd\."
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


@pytest.mark.parametrize("framework", ["torch", "torch 2.11", "jax", "ufunc"])
def test_a_first_use_that_is_interrupted_is_taken_up_again(framework):
    framework, *strict = framework.split()
    if framework == "jax":
        pytest.importorskip("jax")
    run(f"""
        my = operators.load()
        import {framework.replace("ufunc", "numpy")}
        if {strict}:
            # That version refuses to register a function twice unless it is told to.
            torch.library.Library.impl.__kwdefaults__["allow_override"] = False

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
    # PyTorch makes an undefined tensor of None.
    for found in (x, torch.ones(3, requires_grad=True)):
        with pytest.raises(TypeError, match=r"^weighted: weight: expected a .*, found None$"):
            my.weighted(found, None)
        with pytest.raises(RuntimeError, match=r"^weighted: weight: "):
            my.weighted.torch(found, None)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.asarray, r'; convert with x.astype\("float64"\), which rounds'),
        (torch.tensor, r"; convert with x.to\(torch.float64\), which rounds"),
    ],
)
def test_a_wrong_dtype_has_the_words_of_the_framework(array, expected):
    with pytest.raises(
        (TypeError, RuntimeError), match=rf"^same: expected x: int32 or .*found int64{expected}$"
    ):
        my.same(array([1 << 60]))


def test_the_conversion_that_an_error_advises_keeps_values():
    names = "uint8 int8 uint16 int16 uint32 bfloat16 float16 float8_e4m3fn float8_e5m2"
    for name in names.split():
        x = torch.tensor([0.0, 1.0, 2.0]).to(getattr(torch, name))
        values, meta = x.to(torch.float64).tolist(), x.to("meta")
        for function in (my.same, my.same.torch):
            for found in (x, meta):
                with pytest.raises((TypeError, RuntimeError), match=f"found {name};") as error:
                    function(found)
                advice = str(error.value).split("; convert with ")[1]
                assert "rounds" not in advice
                assert my.same(eval(advice)).tolist() == values
    for array in (torch.tensor([1j]), np.asarray([1j]), torch.tensor([1j], device="meta")):
        with pytest.raises((TypeError, RuntimeError), match=r"or x: bool, found complex\w+$"):
            my.same(array)


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
