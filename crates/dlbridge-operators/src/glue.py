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
        if shape is None:
            continue
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
        if all(b in (None, a) for a, b in zip(inputs, found)):
            return outputs
    expected = " or ".join(", ".join(inputs) for inputs, _ in about["dtypes"])
    found = ", ".join(str(dtype) for dtype in found)
    raise TypeError(f"{about['name']}: expected {expected}, found {found}")


TENSORS = ("tensor", "optional", "in place")


def names(about, kinds=TENSORS):
    return [name for name, kind in about["parameters"] if kind in kinds]


def in_place(about):
    """The indices of the tensors that the function changes."""
    kinds = [kind for _, kind in about["parameters"]]
    return [index for index, kind in enumerate(kinds) if kind == "in place"]


def each(function, tensors):
    """The function of each tensor, and `None` where an optional one is absent."""
    return [None if tensor is None else function(tensor) for tensor in tensors]


def aligned(about, shapes):
    """The shapes with as many leading axes each, so that one more in front of each is one axis."""
    fronts = [
        0 if shape is None else len(shape) - len(axes)
        for axes, shape in zip(about["inputs"], shapes)
    ]
    return [
        shape if shape is None else (1,) * (max(fronts) - front) + tuple(shape)
        for front, shape in zip(fronts, shapes)
    ]


def gradients_of(about, found, tensors, no_gradient, total):
    """The gradient of each tensor: of those that have one, in the order in which `backward` fills them."""
    found, gradients = iter(found), []
    for has_gradient, tensor in zip(about["floating"], tensors):
        gradient = next(found) if has_gradient else None
        if tensor is None:
            gradients.append(None)
        elif gradient is None:
            gradients.append(no_gradient(tensor))
        else:
            gradients.append(summed(gradient, tensor.shape, total))
    return gradients


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


def single(results):
    """What a function of so many results returns."""
    return tuple(results) if len(results) > 1 else next(iter(results), None)


def make_torch(about, register, module):
    import torch

    library = str(next(Path(torch.__file__).parent.glob("lib/*torch_cpu.*")))
    has_autograd = register(library, known_in_torch())  # noqa: F821
    name = f"{about['namespace']}::{about['name']}"
    operator = getattr(getattr(torch.ops, about["namespace"]), about["name"])
    count = len(about["inputs"])

    def fake(*arguments):
        tensors = arguments[:count]
        found = each(lambda tensor: str(tensor.dtype).removeprefix("torch."), tensors)
        dtypes = output_dtypes(about, found)
        shapes = output_shapes(about, each(lambda tensor: tensor.shape, tensors))
        return single(
            [
                tensors[0].new_empty(shape, dtype=getattr(torch, dtype))
                for shape, dtype in zip(shapes, dtypes)
            ]
        )

    def batched(info, dimensions, *arguments):
        def leading(tensor, dimension):
            if tensor is None or dimension is None:
                return tensor if tensor is None else tensor.unsqueeze(0)
            return tensor.movedim(dimension, 0)

        tensors = list(map(leading, arguments[:count], dimensions))
        shapes = aligned(about, each(lambda tensor: tensor.shape[1:], tensors))
        tensors = [
            tensor if tensor is None else tensor.reshape(tensor.shape[0], *shape)
            for tensor, shape in zip(tensors, shapes)
        ]
        results = operator(*tensors, *arguments[count:])
        if results is None:
            return None, None
        return results, tuple(0 for _ in results) if isinstance(results, tuple) else 0

    torch.library.register_fake(name, fake)
    torch.library.register_vmap(name, batched)
    if in_place(about):
        written_in_torch(about, operator.default)
    elif about["backward"]:

        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs[:count])
            ctx.scalars = inputs[count:]

        def backward(ctx, *gradients):
            tensors = ctx.saved_tensors
            function = getattr(module, about["backward"]).torch
            found = many(function(*gradients, *tensors, *ctx.scalars))
            total = lambda gradient, axes: gradient.sum(axes, keepdim=True)
            found = gradients_of(about, found, tensors, lambda tensor: None, total)
            return (*found, *(None for _ in ctx.scalars))

        differentiate(about, operator, has_autograd, backward, setup_context)  # noqa: F821
    else:

        def no_backward(ctx, *gradients):
            raise RuntimeError(
                f"{name} has no gradient: declare `backward = ...` in Rust, or pass x.detach()"
            )

        differentiate(about, operator, has_autograd, no_backward)  # noqa: F821
    return operator


def written_in_torch(about, operator):
    """Refuses tensors that need a gradient, and counts the versions of those that change in place."""
    import torch

    written, count = in_place(about), len(about["inputs"])
    name = f"{about['namespace']}::{about['name']}"

    def checked(keyset, *arguments):
        tensors = [tensor for tensor in arguments[:count] if tensor is not None]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise RuntimeError(
                f"{name} changes a tensor in place and has no gradient: pass x.detach(), or use torch.no_grad()"
            )
        torch.autograd.graph.increment_version([arguments[at] for at in written])
        with torch._C._AutoDispatchBelowAutograd():
            keyset = keyset & torch._C._after_autograd_keyset
            return operator.redispatch(keyset, *arguments)

    library = torch.library.Library(about["namespace"], "FRAGMENT")
    library.impl(about["name"], checked, "Autograd", with_keyset=True)
    # Deleting it would remove the function.
    LIBRARIES.append(library)


LIBRARIES = []


def make_jax(about, target, module):
    import jax
    import numpy as np

    name = f"{about['module']}.{about['name']}"
    jax.ffi.register_ffi_target(name, target, platform="cpu")
    count, written = len(about["inputs"]), in_place(about)
    optional = names(about, ["optional"])
    scalars = about["parameters"][count:]
    types = {"float": np.float64, "int": np.int64, "bool": np.bool_}

    def varying(tensor):
        """The axes of a mesh along which devices have other values, inside `shard_map`."""
        kind = getattr(jax, "typeof", lambda tensor: None)(tensor)
        # The name before JAX 0.10 was `vma`.
        manual = getattr(kind, "manual_axis_type", None)
        return getattr(kind, "vma", frozenset()) if manual is None else manual.varying

    def as_varying(result, tensors):
        """The result, marked as varying along the axes along which these tensors vary."""
        axes = tuple(frozenset().union(*map(varying, tensors)) - varying(result))
        if not axes:
            return result
        if hasattr(jax.lax, "pcast"):
            return jax.lax.pcast(result, axes, to="varying")
        return jax.lax.pvary(result, axes)

    def call(tensors, values):
        found = each(lambda tensor: tensor.dtype.name, tensors)
        dtypes = [found[at] for at in written] + output_dtypes(about, found)
        shapes = aligned(about, each(lambda tensor: tensor.shape, tensors))
        results = [shapes[at] for at in written] + output_shapes(about, shapes)
        made = [
            jax.ShapeDtypeStruct(tuple(shape), jax.numpy.dtype(dtype))
            for shape, dtype in zip(results, dtypes)
        ]
        attributes = {
            name: types[kind](value) for (name, kind), value in zip(scalars, values)
        }
        for tensor, tensor_name in zip(tensors, names(about)):
            if tensor_name in optional:
                attributes[tensor_name] = np.bool_(tensor is not None)
        passed = [
            tensor.reshape(shape)
            for tensor, shape in zip(tensors, shapes)
            if tensor is not None
        ]
        # XLA copies an argument that is needed afterwards.
        before = lambda at: sum(tensor is not None for tensor in tensors[:at])
        aliases = {before(at): result for result, at in enumerate(written)}
        results = jax.ffi.ffi_call(
            name, made, vmap_method="broadcast_all", input_output_aliases=aliases
        )(*passed, **attributes)
        return single([as_varying(result, passed) for result in results])

    def differentiable(values):
        @jax.custom_vjp
        def function(*tensors):
            return call(tensors, values)

        def backward(tensors, gradients):
            other = getattr(module, about["backward"]).jax
            found = many(other(*many(gradients), *tensors, *values))
            total = lambda gradient, axes: gradient.sum(axes, keepdims=True)
            none = lambda tensor: np.zeros(tensor.shape, jax.dtypes.float0)
            found = gradients_of(about, found, tensors, none, total)
            # Devices that share a tensor share the sum of their gradients.
            return tuple(
                gradient
                if tensor is None or not (axes := varying(gradient) - varying(tensor))
                else jax.lax.psum(gradient, tuple(axes))
                for gradient, tensor in zip(found, tensors)
            )

        function.defvjp(lambda *tensors: (function(*tensors), tensors), backward)
        return function

    # Compiled for each list of scalars, which are constants of an XLA custom call.
    @functools.lru_cache(maxsize=256)
    def compiled(values):
        if about["backward"]:
            return jax.jit(differentiable(values))
        return jax.jit(lambda *tensors: call(tensors, values))

    def array(tensor):
        return tensor if isinstance(tensor, jax.Array) else jax.numpy.asarray(tensor)

    def function(*arguments):
        tensors = each(array, arguments[:count])
        return compiled(tuple(arguments[count:]))(*tensors)

    return function


class Operator:
    """A function in Rust: an operator of PyTorch (`torch`) and of JAX (`jax`), NumPy's universal function (`ufunc`)."""

    def __init__(self, about, ways, module):
        self._about, self._module = about, module
        self._eager, self._register, self._target, self._make_ufunc = ways
        self._count, self._arity = len(about["inputs"]), len(about["parameters"])
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

    @functools.cached_property
    def ufunc(self):
        """The universal function of NumPy: `out=`, `axes=`, `where=`, other dtypes are converted."""
        return self._make_ufunc()

    def __call__(self, *arguments, **keywords):
        if keywords or len(arguments) != self._arity:
            arguments = self.__signature__.bind(*arguments, **keywords).args
        tensors = arguments[: self._count]
        # A module that another thread is importing has no such class yet, and no tensors.
        torch = getattr(sys.modules.get("torch"), "Tensor", ())
        for tensor in tensors:
            if isinstance(tensor, torch):
                return self._with_torch(arguments)
        jax = getattr(sys.modules.get("jax"), "Array", ())
        for tensor in tensors:
            if isinstance(tensor, jax):
                return self.jax(*arguments)
        return self._eager(*arguments)

    def _with_torch(self, arguments):
        try:
            operator = self.torch
        except ImportError:
            tensors = arguments[: self._count]
            if any(getattr(x, "requires_grad", False) for x in tensors):
                raise
            return self._eager(*arguments)
        return operator(*arguments)

    def __repr__(self):
        return f"<operator {self.__module__}.{self.__name__}{self.__signature__}>"


def make(about, ways, module):
    operator = Operator(about, ways, module)
    # Now, so that two operators of one name are an error of the module that adds the second one.
    if hasattr(sys.modules.get("torch"), "compile"):
        with contextlib.suppress(ImportError):
            operator.torch  # noqa: B018
    return operator
