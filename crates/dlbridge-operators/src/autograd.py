# The rest of glue.py, in the same module: gradients in PyTorch.


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
    return (*samples, keys, excluded) if keys else None


def differentiate(about, operator, has_autograd, backward, setup_context=None):
    """Registers a gradient. If the operator has a kernel for autograd, that calls another operator for tensors that need one."""
    import torch

    name = f"{about['namespace']}::{about['name']}"
    if not has_autograd:
        torch.library.register_autograd(name, backward, setup_context=setup_context)
        return

    def forward(ctx, *arguments):
        with torch._C._AutoDispatchBelowAutograd():
            results = operator(*arguments)
        if setup_context:
            setup_context(ctx, arguments, results)
        return results

    functions = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function = type(about["name"], (torch.autograd.Function,), functions)
    other = f"_{about['name']}_autograd"
    library = torch.library.Library(about["namespace"], "FRAGMENT")
    library.define(other + str(operator.default._schema).removeprefix(name))
    apply = lambda *arguments: function.apply(*arguments)
    library.impl(other, apply, "CompositeImplicitAutograd")
    LIBRARIES.append(library)  # noqa: F821


def is_differentiable(tensor):
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex
