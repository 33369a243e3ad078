"""The rules of an operator in PyTorch: shapes and dtypes, batches, gradients, arguments in place.

It has the names of `shapes.py`, which runs before it.
"""
# ruff: noqa: F821

import torch


def full_name(about):
    return f"{about['namespace']}::{about['name']}"


def fake(about):
    """The results without their values."""
    name, count = full_name(about), len(about["inputs"])

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

    return fake


def batched(about, operator):
    """The function of `torch.vmap`."""
    count = len(about["inputs"])

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

    return batched


def recorded(about, module):
    """The function of autograd for a call that is recorded: of the results, which the kernel has computed, then the arguments."""
    of_arguments, save = backward(about, module), saving(about)
    one = len(about["outputs"]) == 1

    def forward(ctx, results, *arguments):
        save(ctx, arguments, results)
        return results[0] if one else results

    def jvp(ctx, *tangents):
        raise RuntimeError(
            f"{full_name(about)} has no derivative in forward mode: use reverse mode, such as torch.autograd.functional.vjp or backward()"
        )

    functions = {
        "forward": forward,
        "backward": lambda ctx, *gradients: (None, *of_arguments(ctx, *gradients)),
        "jvp": jvp,
    }
    functions = {name: staticmethod(function) for name, function in functions.items()}
    return type(about["name"], (torch.autograd.Function,), functions).apply


def differentiate(about, module, library):
    """Registers the gradient of an operator that has no kernel for autograd."""
    save = saving(about)
    torch.library.register_autograd(
        full_name(about),
        backward(about, module),
        setup_context=lambda ctx, inputs, output: save(ctx, inputs, many(output)),
        lib=library,
    )


def saving(about):
    count = len(about["inputs"])

    def save(ctx, arguments, results):
        if about["backward"]:
            kept = results if about["with_results"] else ()
            ctx.save_for_backward(*kept, *arguments[:count])
            ctx.scalars = arguments[count:]

    return save


def backward(about, module):
    """The gradient of each argument."""
    count = len(about["inputs"])

    def backward(ctx, *gradients):
        if not about["backward"]:
            raise RuntimeError(
                f"{full_name(about)} has no gradient: declare `backward = ...` in Rust, or pass x.detach()"
            )
        saved = ctx.saved_tensors
        tensors = saved[len(saved) - count :]
        function = getattr(module, about["backward"]).torch
        found = many(function(*gradients, *saved, *ctx.scalars))
        total = lambda gradient, axes: gradient.sum(axes, keepdim=True)
        found = gradients_of(
            about, found, tensors, is_differentiable, lambda tensor: None, total
        )
        return (*found, *(None for _ in ctx.scalars))

    return backward


def is_differentiable(tensor):
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def checked(about, operator):
    """Refuses tensors in place that need a gradient."""
    name, count = full_name(about), len(about["inputs"])

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

    return checked


def counted(about, operator):
    """Counts the versions of the tensors that change in place."""
    written = in_place(about)

    def counted(keyset, *arguments):
        # Below autograd, because `torch.inference_mode` skips that.
        torch.autograd.graph.increment_version([arguments[at] for at in written])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            keyset = keyset & torch._C._after_ADInplaceOrView_keyset
            return operator.redispatch(keyset, *arguments)

    return counted


def resolved(about, operator):
    """Resolves lazy values of tensors to read."""
    name, count, written = full_name(about), len(about["inputs"]), in_place(about)

    def resolved(*arguments):
        # PyTorch's own function for these keys requires that the operator returns what it has written.
        is_lazy = lambda tensor: tensor.is_neg() or tensor.is_conj()
        if any(is_lazy(arguments[at]) for at in written):
            raise RuntimeError(
                f"{name}: expected values to write, found those of a lazy x.conj() or its parts; pass x.resolve_conj().resolve_neg()"
            )
        values = lambda tensor: tensor.resolve_conj().resolve_neg()
        return operator(*each(values, arguments[:count]), *arguments[count:])

    return resolved


def has_tangent(tensors):
    from torch.autograd import forward_ad

    if getattr(forward_ad, "_current_level", 0) < 0:
        return False
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)
