"""The Python half of dlbridge-operators: calls the functions by which PyTorch and JAX accept operators."""

import contextlib
import functools
import inspect
import sys
from pathlib import Path


def extents(about, shapes):
    """The broadcast leading axes, and the extents of the named axes; sizes may be symbolic."""
    sizes, leading = {}, []
    for name, axes, shape in zip(names(about), about["inputs"], shapes):
        front = len(shape) - len(axes)
        if front < 0:
            raise ValueError(
                f"{about['name']}: {name}: expected at least {len(axes)} axes, found {len(shape)}"
            )
        for axis, extent in zip(axes, shape[front:]):
            expected = axis if isinstance(axis, int) else sizes.setdefault(axis, extent)
            if expected != extent:
                raise ValueError(
                    f"{about['name']}: {name}: expected {expected} along {axis}, found {extent}"
                )
        batch = list(shape[:front])
        longest = max(len(leading), front)
        leading = [
            b if a == 1 else a
            for a, b in zip(padded(leading, longest), padded(batch, longest))
        ]
    return leading, sizes


def padded(shape, rank):
    return [1] * (rank - len(shape)) + list(shape)


def output_shapes(about, shapes):
    leading, sizes = extents(about, shapes)
    size = lambda axis: axis if isinstance(axis, int) else sizes[axis]
    return [[*leading, *map(size, axes)] for axes in about["outputs"]]


def output_dtypes(about, found):
    """The names of the outputs' dtypes for the names of the inputs'."""
    for inputs, outputs in about["dtypes"]:
        if inputs == found:
            return outputs
    expected = " or ".join(", ".join(inputs) for inputs, _ in about["dtypes"])
    raise TypeError(f"{about['name']}: expected {expected}, found {', '.join(found)}")


def names(about):
    return [name for name, kind in about["parameters"] if kind == "tensor"]


def aligned(about, shapes):
    """The shapes with as many leading axes each, so that one more in front of each is one axis."""
    fronts = [len(shape) - len(axes) for axes, shape in zip(about["inputs"], shapes)]
    return [
        (1,) * (max(fronts) - front) + tuple(shape)
        for front, shape in zip(fronts, shapes)
    ]


def summed(gradient, shape, total):
    """The gradient of an input that was broadcast."""
    extra = gradient.ndim - len(shape)
    axes = [
        axis
        for axis in range(gradient.ndim)
        if axis < extra or shape[axis - extra] == 1
    ]
    return total(gradient, tuple(axes)).reshape(shape) if axes else gradient


def many(result):
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def make_torch(about, register, module):
    import torch

    register(str(next(Path(torch.__file__).parent.glob("lib/*torch_cpu.*"))))
    name = f"{about['namespace']}::{about['name']}"
    operator = getattr(getattr(torch.ops, about["namespace"]), about["name"])
    count = len(about["inputs"])

    def fake(*arguments):
        tensors = arguments[:count]
        found = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
        dtypes = output_dtypes(about, found)
        shapes = output_shapes(about, [tensor.shape for tensor in tensors])
        made = [
            tensors[0].new_empty(shape, dtype=getattr(torch, dtype))
            for shape, dtype in zip(shapes, dtypes)
        ]
        return made[0] if len(made) == 1 else tuple(made)

    def batched(info, dimensions, *arguments):
        shapes, tensors = [], []
        for tensor, dimension in zip(arguments[:count], dimensions):
            tensor = (
                tensor.unsqueeze(0)
                if dimension is None
                else tensor.movedim(dimension, 0)
            )
            tensors.append(tensor)
            shapes.append(tuple(tensor.shape[1:]))
        tensors = [
            tensor.reshape(tensor.shape[0], *shape)
            for tensor, shape in zip(tensors, aligned(about, shapes))
        ]
        results = operator(*tensors, *arguments[count:])
        return results, 0 if not isinstance(results, tuple) else tuple(
            0 for _ in results
        )

    torch.library.register_fake(name, fake)
    torch.library.register_vmap(name, batched)
    if about["backward"]:

        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs[:count])
            ctx.scalars = inputs[count:]

        def backward(ctx, *gradients):
            tensors = ctx.saved_tensors
            function = getattr(module, about["backward"]).torch
            found = many(function(*gradients, *tensors, *ctx.scalars))
            total = lambda gradient, axes: gradient.sum(axes, keepdim=True)
            found = [
                summed(one, tensor.shape, total) for one, tensor in zip(found, tensors)
            ]
            return (*found, *(None for _ in ctx.scalars))

        torch.library.register_autograd(name, backward, setup_context=setup_context)
    else:

        def no_backward(ctx, *gradients):
            raise RuntimeError(
                f"{name} has no gradient: declare `backward = ...` in Rust, or pass x.detach()"
            )

        torch.library.register_autograd(name, no_backward)
    return operator


def make_jax(about, target, module):
    import jax
    import numpy as np

    name = f"{about['module']}.{about['name']}"
    jax.ffi.register_ffi_target(name, target, platform="cpu")
    count = len(about["inputs"])
    scalars = [(name, kind) for name, kind in about["parameters"] if kind != "tensor"]
    types = {"float": np.float64, "int": np.int64, "bool": np.bool_}

    def call(tensors, values):
        dtypes = output_dtypes(about, [tensor.dtype.name for tensor in tensors])
        shapes = aligned(about, [tensor.shape for tensor in tensors])
        tensors = [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes)]
        made = [
            jax.ShapeDtypeStruct(tuple(shape), jax.numpy.dtype(dtype))
            for shape, dtype in zip(output_shapes(about, shapes), dtypes)
        ]
        attributes = {
            name: types[kind](value) for (name, kind), value in zip(scalars, values)
        }
        made = made[0] if len(made) == 1 else made
        return jax.ffi.ffi_call(name, made, vmap_method="broadcast_all")(
            *tensors, **attributes
        )

    @functools.lru_cache(maxsize=256)
    def differentiable(values):
        @jax.custom_vjp
        def function(*tensors):
            return call(tensors, values)

        def backward(tensors, gradients):
            gradients = (
                gradients if isinstance(gradients, (tuple, list)) else (gradients,)
            )
            other = getattr(module, about["backward"]).jax
            found = many(other(*gradients, *tensors, *values))
            total = lambda gradient, axes: gradient.sum(axes, keepdims=True)
            return tuple(
                summed(one, tensor.shape, total) for one, tensor in zip(found, tensors)
            )

        function.defvjp(lambda *tensors: (function(*tensors), tensors), backward)
        return function

    def function(*arguments):
        tensors = [jax.numpy.asarray(tensor) for tensor in arguments[:count]]
        values = tuple(arguments[count:])
        if about["backward"]:
            return differentiable(values)(*tensors)
        return call(tensors, values)

    return function


class Operator:
    """A function in Rust: an operator of PyTorch (`torch`) and of JAX (`jax`), and a function of other arrays."""

    def __init__(self, about, eager, register, target, module):
        self._about, self._eager, self._register = about, eager, register
        self._target, self._module = target, module
        self._count = len(about["inputs"])
        self.__name__ = self.__qualname__ = about["name"]
        self.__module__, self.__doc__ = about["module"], about["doc"]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, kind) for name, _ in about["parameters"]]
        )

    @functools.cached_property
    def torch(self):
        """The operator of PyTorch, `torch.ops.NAMESPACE.NAME`."""
        return make_torch(self._about, self._register, self._module)

    @functools.cached_property
    def jax(self):
        """The function of JAX, for `jit`, `vmap` and `grad`."""
        return make_jax(self._about, self._target, self._module)

    def __call__(self, *arguments, **keywords):
        if keywords or len(arguments) != len(self.__signature__.parameters):
            bound = self.__signature__.bind(*arguments, **keywords)
            arguments = bound.args
        tensors = arguments[: self._count]
        # A module that another thread is importing has no such class yet, and no tensors.
        torch, jax = (sys.modules.get(name) for name in ("torch", "jax"))
        if any(isinstance(x, getattr(torch, "Tensor", ())) for x in tensors):
            try:
                return self.torch(*arguments)
            except ImportError:
                if any(getattr(x, "requires_grad", False) for x in tensors):
                    raise
        elif any(isinstance(x, getattr(jax, "Array", ())) for x in tensors):
            return self.jax(*arguments)
        return self._eager(*arguments)

    def __repr__(self):
        return f"<operator {self.__module__}.{self.__name__}{self.__signature__}>"


def make(about, eager, register, target, module):
    operator = Operator(about, eager, register, target, module)
    # Now, so that two operators of one name are an error of the module that adds the second one.
    if hasattr(sys.modules.get("torch"), "compile"):
        with contextlib.suppress(ImportError):
            operator.torch  # noqa: B018
    return operator
