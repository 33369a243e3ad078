# The rest of glue.py, in the same module: gradients in PyTorch.
# ruff: noqa: F821


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
    from pathlib import Path

    import torch

    folder = Path(torch.__file__).parent
    return next(map(str, folder.glob(f"lib/*{name}.*")), None)


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
