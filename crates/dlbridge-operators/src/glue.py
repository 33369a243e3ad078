"""The Python half of dlbridge-operators: calls the functions by which PyTorch and JAX accept operators.

It has the names of `shapes.py`, which runs before it.
"""
# ruff: noqa: F821

import functools
import math
import struct


def make_torch(about, register, keep, module):
    import torch

    libraries = library_of_torch("torch_cpu"), library_of_torch("torch_cuda")
    # Inference mode, which excludes autograd's keys, would decide for later calls.
    with torch.inference_mode(False):
        has_autograd = register(libraries[0], known_in_torch(), libraries[1])
    name = f"{about['namespace']}::{about['name']}"
    operator = getattr(getattr(torch.ops, about["namespace"]), about["name"])
    count = len(about["inputs"])

    def fake(*arguments):
        tensors = arguments[:count]
        devices = {str(tensor.device) for tensor in tensors if tensor is not None}
        if len(devices) > 1:
            raise RuntimeError(
                f"{name}: expected tensors on one device, found {', '.join(sorted(devices))}; use x.to(...)"
            )
        found = each(lambda tensor: str(tensor.dtype).removeprefix("torch."), tensors)
        dtypes = output_dtypes(about, found, "{}.to(torch.{})")
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

    torch.library.register_fake(name, keeping(about, keep, fake))
    torch.library.register_vmap(name, keeping(about, keep, batched, 2))
    if in_place(about):
        written_in_torch(about, operator.default)
    elif about["backward"]:

        def setup_context(ctx, inputs, output):
            results = many(output) if about["with_results"] else ()
            ctx.save_for_backward(*results, *inputs[:count])
            ctx.scalars = inputs[count:]

        def backward(ctx, *gradients):
            saved = ctx.saved_tensors
            tensors = saved[len(saved) - count :]
            function = getattr(module, about["backward"]).torch
            found = many(function(*gradients, *saved, *ctx.scalars))
            total = lambda gradient, axes: gradient.sum(axes, keepdim=True)
            found = gradients_of(
                about, found, tensors, is_differentiable, lambda tensor: None, total
            )
            return (*found, *(None for _ in ctx.scalars))

        differentiate(about, operator, has_autograd, keep, backward, setup_context)
    else:

        def no_backward(ctx, *gradients):
            raise RuntimeError(
                f"{name} has no gradient: declare `backward = ...` in Rust, or pass x.detach()"
            )

        differentiate(about, operator, has_autograd, keep, no_backward)
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
        if has_tangent(tensors):
            raise RuntimeError(
                f"{name} changes a tensor in place and has no derivative in forward mode"
            )
        with torch._C._AutoDispatchBelowAutograd():
            keyset = keyset & torch._C._after_autograd_keyset
            return operator.redispatch(keyset, *arguments)

    def counted(keyset, *arguments):
        # Below autograd, because `torch.inference_mode` skips that.
        torch.autograd.graph.increment_version([arguments[at] for at in written])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            keyset = keyset & torch._C._after_ADInplaceOrView_keyset
            return operator.redispatch(keyset, *arguments)

    def resolved(*arguments):
        # PyTorch's own function for these keys requires that the operator returns what it has written.
        is_lazy = lambda tensor: tensor.is_neg() or tensor.is_conj()
        if any(is_lazy(arguments[at]) for at in written):
            raise RuntimeError(
                f"{name}: expected values to write, found those of a lazy x.conj() or its parts; pass x.resolve_conj().resolve_neg()"
            )
        values = lambda tensor: tensor.resolve_conj().resolve_neg()
        return operator(*each(values, arguments[:count]), *arguments[count:])

    library = library_for(about)
    for key, function in (("Autograd", checked), ("ADInplaceOrView", counted)):
        library.impl(about["name"], complete(about, function, 1), key, with_keyset=True)
    for key in ("Conjugate", "Negative"):
        library.impl(about["name"], complete(about, resolved), key)


def has_tangent(tensors):
    from torch.autograd import forward_ad

    if getattr(forward_ad, "_current_level", 0) < 0:
        return False
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def make_jax(about, targets, module):
    import jax
    import numpy as np

    name = f"{about['module']}.{about['name']}"
    for platform, target in zip(("cpu", "CUDA"), targets):
        jax.ffi.register_ffi_target(name, target, platform=platform)
    count, written = len(about["inputs"]), in_place(about)
    optional = names(about, ["optional"])
    scalars = about["parameters"][count:]
    types = {"float": np.float64, "int": np.int64, "bool": np.bool_}
    words = struct.Struct(
        "="
        + "".join({"float": "d", "int": "q", "bool": "?"}[kind] for _, kind in scalars)
    )
    truths = [at for at, (_, kind) in enumerate(scalars) if kind == "bool"]

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

    def packed(values):
        """The scalars as words, because 0.0 == -0.0, and 1 == True."""
        try:
            if all(isinstance(values[at], (bool, np.bool_)) for at in truths):
                return words.pack(*values)
        except (struct.error, IndexError):
            pass
        expected = ", ".join(f"{name}: {kind}" for name, kind in scalars)
        found = ", ".join(type(value).__name__ for value in values)
        raise TypeError(
            f"{about['name']}: expected {expected}, found {found}; a scalar is a constant of jax.jit: use static_argnums"
        )

    def call(tensors, values):
        for (tensor_name, kind), tensor in zip(about["parameters"], tensors):
            if tensor is None and kind != "optional":
                raise TypeError(
                    f"{about['name']}: {tensor_name}: expected an array, found None"
                )
        found = each(lambda tensor: tensor.dtype.name, tensors)
        dtypes = [found[at] for at in written] + output_dtypes(
            about, found, "{}.astype(jnp.{})"
        )
        shapes = aligned(about, each(lambda tensor: tensor.shape, tensors))
        results = [shapes[at] for at in written] + output_shapes(about, shapes)
        for shape in results:
            # XLA ends the process.
            if (
                all(isinstance(extent, int) for extent in shape)
                and math.prod(filter(None, shape)) >= 2**60
            ):
                raise ValueError(
                    f"{about['name']}: expected results that fit into memory, found extents {tuple(shape)}"
                )
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

        def forward(*tensors):
            results = function(*tensors)
            return results, (
                many(results) if about["with_results"] else (),
                tensors,
            )

        def backward(saved, gradients):
            results, tensors = saved
            other = getattr(module, about["backward"]).jax
            found = many(other(*many(gradients), *results, *tensors, *values))
            total = lambda gradient, axes: gradient.sum(axes, keepdims=True)
            none = lambda tensor: np.zeros(tensor.shape, jax.dtypes.float0)
            is_floating = lambda tensor: jax.numpy.issubdtype(tensor.dtype, np.inexact)
            found = gradients_of(about, found, tensors, is_floating, none, total)
            # Devices that share a tensor share the sum of their gradients.
            return tuple(
                gradient
                if tensor is None or not (axes := varying(gradient) - varying(tensor))
                else jax.lax.psum(gradient, tuple(axes))
                for gradient, tensor in zip(found, tensors)
            )

        function.defvjp(forward, backward)
        return function

    # Compiled for each list of scalars, which are constants of an XLA custom call.
    @functools.lru_cache(maxsize=256)
    def compiled(bits):
        values = words.unpack(bits)
        if about["backward"]:
            return jax.jit(differentiable(values))
        return jax.jit(lambda *tensors: call(tensors, values))

    def array(tensor):
        return tensor if isinstance(tensor, jax.Array) else jax.numpy.asarray(tensor)

    def function(*arguments):
        missing = len(about["parameters"]) - len(arguments)
        if 0 < missing <= len(about["defaults"]):
            arguments += (None,) * missing
        tensors = each(array, arguments[:count])
        return compiled(packed(arguments[count:]))(*tensors)

    return function
