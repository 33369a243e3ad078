"""Registers an operator with PyTorch. Its rules are compiled and run when PyTorch first needs one: see `torch_rules.py`."""

import functools
import os


def make_torch(about, register, module, rules):
    import torch

    count = len(about["parameters"])

    def rule(name, *more, extra=0):
        """The function that `name` makes, when it is first called."""
        made = []

        def function(*arguments):
            if not made:
                made.append(getattr(rules(), name)(about, *more))
            # PyTorch leaves out optional arguments at the end.
            absent = count + extra - len(arguments)
            return made[0](*arguments, *(None,) * absent)

        return function

    name = f"{about['namespace']}::{about['name']}"
    libraries = library_of_torch("torch_cpu"), library_of_torch("torch_cuda")
    # Inference mode, which excludes autograd's keys, would decide for later calls.
    with torch.inference_mode(False):
        recorded = lambda: (rules().recorded(about, module), operator.default)
        has_autograd = register(libraries[0], known_in_torch, libraries[1], recorded)
    operator = getattr(getattr(torch.ops, about["namespace"]), about["name"])
    library = library_for(about)
    register_fake(name, rule("fake"), library)
    batched = rule("batched", operator, extra=2)
    torch.library.register_vmap(name, batched, lib=library)
    if any(kind == "in place" for _, kind in about["parameters"]):
        for made, key in (("checked", "Autograd"), ("counted", "ADInplaceOrView")):
            function = rule(made, operator.default, extra=1)
            library.impl(about["name"], function, key, with_keyset=True)
        for key in ("Conjugate", "Negative"):
            library.impl(about["name"], rule("resolved", operator.default), key)
    elif not has_autograd:
        rules().differentiate(about, module, library)
    return operator


def register_fake(name, function, library):
    """As `torch.library.register_fake`, which asks `inspect` where its caller is: that takes a millisecond."""
    import torch

    try:
        entry = torch._library.simple_registry.singleton.find(name)
        # A first use that was interrupted may have registered it.
        entry.fake_impl.register(
            function, "dlbridge-operators", lib=library, allow_override=True
        )
    except (AttributeError, TypeError):
        torch.library.register_fake(name, function, lib=library)


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


# Deleting one would remove its functions.
LIBRARIES = {}


def library_for(about):
    """A library of PyTorch for the Python half of an operator, in place of that of a first use that was interrupted:
    PyTorch before 2.12 refuses to register a function twice."""
    import torch

    key = about["module"], about["name"]
    if key in LIBRARIES:
        LIBRARIES[key]._destroy()
    LIBRARIES[key] = torch.library.Library(about["namespace"], "FRAGMENT")
    return LIBRARIES[key]
