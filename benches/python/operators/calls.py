"""Measures calls of the operator `scale` in Rust, and of the same operator in C++, C and Python.

`cargo xtask bench operators` runs this for each framework, once for time and once under callgrind.
The records are those of `measure.py`: here a path is a way of calling, and a library the operator's
implementation.
"""

import argparse
import ctypes
import faulthandler
import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent.parent))
from measure import Case, Work, count, measure_time, record

FOLDER = Path(importlib.import_module("bench_meter").__file__).parent
# How many calls one call of the compiled loop makes, and how many rows an array has.
LOOPS = 1000
# An implementation, the function, and its arguments.
Row = tuple[str, Callable[..., Any], tuple[Any, ...]]


def torch_calls(is_counted: bool) -> Iterator[tuple[str, list[Row]]]:
    import bench_operators as ours
    import torch

    torch.set_num_threads(1)
    for name in ("torch", "torch_stable"):
        torch.ops.load_library(str(FOLDER / f"bench_{name}.so"))
    ops = torch.ops

    def of_factor(operator: Any) -> tuple[Any, Any]:
        def keep(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.factor = inputs[1]

        return lambda ctx, gradient: (operator(gradient, ctx.factor), None), keep

    stable = ops.bench_torch_stable.scale_with_gradient
    backward, keep = of_factor(ops.bench_torch_stable.scale)
    torch.library.register_autograd(
        "bench_torch_stable::scale_with_gradient", backward, setup_context=keep
    )

    @torch.library.custom_op("bench_python::scale", mutates_args=())
    def custom(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    custom.register_fake(lambda x, factor: torch.empty_like(x))
    backward, keep = of_factor(custom)
    custom.register_autograd(backward, setup_context=keep)

    x, differentiable = torch.arange(4.0), torch.ones(4, requires_grad=True)
    operators = {
        "floor": ops.bench_torch.scale_with_gradient,
        "torch-stable": stable,
        "custom-op": custom,
        "dlbridge": ours.scale_with_gradient.torch,
        "dlbridge-call": ours.scale_with_gradient,
    }
    plain = {"floor": ops.bench_torch.scale, "torch-stable": ops.bench_torch_stable.scale}
    plain |= {"dlbridge": ours.scale.torch, "dlbridge-call": ours.scale}
    yield "torch", [(name, operator, (x, 2.0)) for name, operator in plain.items()]
    rows = torch.ones(20 * LOOPS, 4)
    yield (
        "torch-rows",
        [
            ("floor", ops.bench_torch.scale_rows, (rows, 2.0)),
            ("dlbridge", ours.scale.torch, (rows, 2.0)),
        ],
    )
    yield "torch-with-gradient", [(name, one, (x, 2.0)) for name, one in operators.items()]
    yield (
        "torch-gradient",
        [(name, one, (differentiable, 2.0)) for name, one in operators.items()],
    )
    if is_counted:
        return
    torch.library.register_fake(
        "bench_torch::scale_with_gradient", lambda x, factor: torch.empty_like(x)
    )

    def compiled(operator: Any) -> Any:
        return torch.compile(lambda x: operator(x + 1, 2.0) + 1, fullgraph=True)

    names = ("floor", "custom-op", "dlbridge")
    yield "torch-compile", [(name, compiled(operators[name]), (x,)) for name in names]


def jax_calls(is_counted: bool) -> Iterator[tuple[str, list[Row]]]:
    import jax

    # Its threads would be counted as well.
    if is_counted:
        return
    jax.config.update("jax_platforms", "cpu")
    import bench_operators as ours

    handlers = ctypes.CDLL(str(FOLDER / "bench_xla.so"))
    for name in ("nothing", "scale"):
        handler = getattr(handlers, f"{name}_handler")
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform="cpu")

    def ffi(name: str) -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            made = jax.ShapeDtypeStruct(x.shape, x.dtype)
            return jax.ffi.ffi_call(name, made)(x, factor=np.float64(1))

        return call

    x = jax.numpy.arange(4, dtype="float32")
    functions = {
        "floor": ffi("nothing"),
        "ffi": ffi("scale"),
        "dlbridge": lambda x: ours.scale.jax(x, 1.0),
    }
    yield "jax", [(name, jax.jit(one), (x,)) for name, one in functions.items()]
    called = [("dlbridge-call", ours.scale, (x, 1.0))]
    yield "jax-call", [("floor", jax.jit(ffi("nothing")), (x,)), *called]

    def loop(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        compiled = jax.jit(lambda x: jax.lax.fori_loop(0, LOOPS, lambda _, x: function(x), x))
        return lambda x: compiled(x).block_until_ready()

    yield "jax-loop", [(name, loop(one), (x,)) for name, one in functions.items()]


def numpy_calls(_: bool) -> Iterator[tuple[str, list[Row]]]:
    import bench_operators as ours
    import bench_ufunc as floor

    x, rows, factor = np.arange(4, dtype=np.float32), np.ones((LOOPS, 4), np.float32), np.array(2.0)

    def both(name: str, x: Any) -> list[Row]:
        function = getattr(ours, name).ufunc
        return [("floor", getattr(floor, name), (x, factor)), ("dlbridge", function, (x, factor))]

    yield "numpy", [*both("scale", x), ("dlbridge-call", ours.scale, (x, 2.0))]
    yield "numpy-each", [*both("scale_each", x), ("dlbridge-call", ours.scale_each, (x, 2.0))]
    yield "numpy-rows", both("scale", rows)


def torch_cuda_calls(is_counted: bool) -> Iterator[tuple[str, list[Row]]]:
    if is_counted:
        return
    import cuda_operators as ours
    import torch

    torch.ops.load_library(str(FOLDER / "bench_torch_cuda.so"))
    floor = torch.ops.bench_torch_cuda.scale
    torch.library.register_fake("bench_torch_cuda::scale", lambda x, factor: torch.empty_like(x))
    x = torch.arange(4.0, device="cuda")
    operators = {"floor": floor, "dlbridge": ours.scale.torch, "dlbridge-call": ours.scale}
    for name, one in operators.items():
        assert one(x, 2.0).tolist() == [0, 2, 4, 6], name
    yield "torch-cuda", [(name, one, (x, 2.0)) for name, one in operators.items()]
    own = x.clone().requires_grad_()
    yield "torch-cuda-gradient", [(name, one, (own, 2.0)) for name, one in operators.items()]

    def compiled(operator: Any) -> Any:
        return torch.compile(lambda x: operator(x + 1, 2.0) + 1, fullgraph=True)

    names = ("floor", "dlbridge")
    yield "torch-cuda-compile", [(name, compiled(operators[name]), (x,)) for name in names]


def jax_cuda_calls(is_counted: bool) -> Iterator[tuple[str, list[Row]]]:
    if is_counted:
        return
    import cuda_operators as ours
    import jax

    handler = ctypes.CDLL(str(FOLDER / "bench_xla_cuda.so")).scale_cuda_handler
    jax.ffi.register_ffi_target("scale_cuda", jax.ffi.pycapsule(handler), platform="CUDA")

    def floor(x: Any) -> Any:
        made = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.ffi.ffi_call("scale_cuda", made)(x, factor=np.float64(1))

    x = jax.numpy.arange(4, dtype="float32")
    functions = {"floor": floor, "dlbridge": lambda x: ours.scale.jax(x, 1.0)}
    yield "jax-cuda", [(name, jax.jit(one), (x,)) for name, one in functions.items()]


FRAMEWORKS = {
    "torch": torch_calls,
    "jax": jax_calls,
    "numpy": numpy_calls,
    "torch-cuda": torch_cuda_calls,
    "jax-cuda": jax_cuda_calls,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the calls of one framework.")
    parser.add_argument("--framework", choices=FRAMEWORKS, required=True)
    parser.add_argument("--libraries", help="not used: all are measured")
    parser.add_argument("--count", action="store_true", help="count instead of timing")
    given = parser.parse_args()
    faulthandler.enable()
    gc.disable()
    try:
        version = importlib.import_module(given.framework.split("-")[0]).__version__
    except ImportError:
        record("absent", given.framework)
        return
    record("version", given.framework, version)
    todo = []
    for path, rows in FRAMEWORKS[given.framework](given.count):
        expected = np.arange(4.0) * (1 if given.framework.startswith("jax") else 2)
        for name, function, arguments in rows:
            result = function(*arguments)
            if path in ("torch", "torch-with-gradient", "numpy", "numpy-each"):
                np.testing.assert_array_equal(np.asarray(result), expected)
            todo.append(Case(Work(function, arguments), None, path, name))
    (count if given.count else measure_time)(todo)


if __name__ == "__main__":
    main()
