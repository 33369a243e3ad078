"""The half for PyTorch of an operator in Python: calls the functions by which PyTorch accepts operators.

It has the names of `shapes.py`, which runs before it.
"""
# ruff: noqa: F821

import functools
import os


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

    library = library_for(about)
    # PyTorch asks `inspect` where its caller is, which takes milliseconds for one without a file: the level is its own.
    fake = keeping(about, keep, fake)
    torch.library.register_fake(name, fake, lib=library, _stacklevel=-1)
    torch.library.register_vmap(name, keeping(about, keep, batched, 2), lib=library)
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


def known_in_torch():
    """Two tensors, autograd's dispatch keys and the function for a thread's keys: functions of PyTorch are compared with them."""
    import torch

    try:
        excluded = torch._C._dispatch_tls_local_exclude_set
        before = excluded().raw_repr()
        with torch._C._AutoDispatchBelowAutograd():
            keys = excluded().raw_repr() & ~before
        samples = torch.zeros(1), torch.zeros(1, requires_grad=True)
    except (AttributeError, RuntimeError):
        return None
    # There are none in inference mode.
    return (
        (*samples, keys, excluded, library_of_torch("torch_python")) if keys else None
    )


@functools.cache
def library_of_torch(name):
    import torch

    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    files = (
        file
        for file in os.listdir(folder)
        if file.split(".")[0] in (name, "lib" + name)
    )
    return next((os.path.join(folder, file) for file in files), None)


def complete(about, function, extra=0):
    """The function, with `None` for optional arguments, which PyTorch leaves out at the end."""
    count = len(about["parameters"]) + extra
    if not about["defaults"]:
        return function
    return lambda *arguments: function(
        *arguments, *(None for _ in range(count - len(arguments)))
    )


def keeping(about, keep, function, extra=0):
    """The function. It keeps its exception, of which PyTorch's C functions keep the text only."""
    completed = complete(about, function, extra)

    def kept(*arguments):
        try:
            return completed(*arguments)
        except BaseException as error:
            keep(error)
            raise

    return kept


# Deleting one would remove its functions.
LIBRARIES = {}


def library_for(about):
    """The library of PyTorch in which the Python half of an operator is."""
    import torch

    key = about["module"], about["name"]
    if key not in LIBRARIES:
        LIBRARIES[key] = torch.library.Library(about["namespace"], "FRAGMENT")
    return LIBRARIES[key]


def differentiate(about, operator, has_autograd, keep, backward, setup_context=None):
    """Registers a gradient. If the operator has a kernel for autograd, that calls another operator for tensors that need one."""
    import torch

    name = f"{about['namespace']}::{about['name']}"
    if not has_autograd:
        torch.library.register_autograd(name, backward, setup_context=setup_context)
        return

    def forward(ctx, *arguments):
        with torch._C._AutoDispatchBelowAutograd():
            results = operator.default(*arguments)
        if setup_context:
            setup_context(ctx, arguments, results)
        return results

    def jvp(ctx, *tangents):
        raise RuntimeError(
            f"{name} has no derivative in forward mode: use reverse mode, such as torch.func.vjp or backward()"
        )

    functions = {"forward": forward, "backward": backward, "jvp": jvp}
    functions = {name: staticmethod(function) for name, function in functions.items()}
    function = type(about["name"], (torch.autograd.Function,), functions)
    other = f"_{about['name']}_autograd"
    library = library_for(about)
    # It is there if the first use was interrupted.
    if not hasattr(getattr(torch.ops, about["namespace"]), other):
        library.define(other + str(operator.default._schema).removeprefix(name))
    kept = keeping(about, keep, function.apply)
    library.impl(other, kept, "CompositeImplicitAutograd")


def is_differentiable(tensor):
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex
