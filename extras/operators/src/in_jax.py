"""The half for JAX of an operator in Python: calls the functions by which JAX accepts operators.

It has the names of `shapes.py`, which runs before it.
"""
# ruff: noqa: F821

import functools
import math
import struct

CONVERT = "{}.astype(jnp.{})"


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

    def dtype_name(tensor):
        return tensor.dtype.name

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
        found = each(dtype_name, tensors)
        is_wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
        dtypes = output_dtypes(about, found, CONVERT, is_wide)
        dtypes = [found[at] for at in written] + dtypes
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
        called = functools.partial(
            jax.ffi.ffi_call(
                name,
                made,
                vmap_method="broadcast_all",
                input_output_aliases=aliases,
            ),
            **attributes,
        )
        whole = whole_shapes(about, shapes)
        if about["cuda"] and [tensor.shape for tensor in passed] != whole:
            # A function on CUDA gets contiguous elements.
            broadcast = lambda *passed: called(
                *map(jax.numpy.broadcast_to, passed, whole)
            )
            results = jax.lax.platform_dependent(
                *passed, cuda=broadcast, default=called
            )
        else:
            results = called(*passed)
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
            # JAX passes none of a result of integers.
            dtypes = output_dtypes(about, each(dtype_name, tensors), CONVERT)
            gradients = [
                jax.numpy.zeros(gradient.shape, dtype)
                if gradient.dtype == jax.dtypes.float0
                else gradient
                for gradient, dtype in zip(many(gradients), dtypes)
            ]
            found = many(other(*gradients, *results, *tensors, *values))
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
