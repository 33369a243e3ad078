"""The Python object of an operator. It has the names of `glue.py`, which runs before it."""
# ruff: noqa: F821

import contextlib
import importlib
import inspect
import os
import sys
import threading

LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A child has no thread that would release it.
    os.register_at_fork(
        before=LOCK.acquire,
        after_in_parent=LOCK.release,
        after_in_child=LOCK.release,
    )


class Once:
    """An attribute that one thread makes, when it is first asked for."""

    def __init__(self, make):
        self.__doc__, self.name = make.__doc__, make.__name__
        framework = self.name.replace("ufunc", "numpy")

        def made(operator):
            if self.name in operator._made:
                return
            # Before the lock, because another thread may be importing it, and need an operator.
            importlib.import_module(framework)
            with LOCK:
                if self.name not in operator._made:
                    operator._made[self.name] = make(operator)

        # `torch.compile` calls it while it traces, in place of tracing it.
        made._dynamo_marked_constant = True
        self.made = made

    def __get__(self, operator, owner=None):
        if operator is None:
            return self
        self.made(operator)
        return operator._made[self.name]


class Operator:
    """A function in Rust: an operator of PyTorch (`torch`) and of JAX (`jax`), NumPy's universal function (`ufunc`)."""

    def __init__(self, about, ways, module):
        self._about, self._module, self._made = about, module, {}
        self._eager, self._register, self._targets, self._make_ufunc = ways
        self._count, self._arity = len(about["inputs"]), len(about["parameters"])
        self.__name__ = self.__qualname__ = about["name"]
        self.__module__, self.__doc__ = about["module"], about["doc"]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, kind) for name, _ in about["parameters"]]
        )

    @Once
    def torch(self):
        """The operator of PyTorch, `torch.ops.NAMESPACE.NAME`."""
        return make_torch(self._about, self._register, self._module)

    @Once
    def jax(self):
        """The function of JAX, for `jit`, `vmap` and `grad`."""
        return make_jax(self._about, self._targets, self._module)

    @Once
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
                function = self._made.get("jax") or self.jax
                return function(*arguments)
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


OPERATORS = {}


def make(about, ways, module):
    key = about["module"], about["type"]
    if key in OPERATORS:
        # The module is imported again: its operators are registered already.
        return OPERATORS[key]
    operator = Operator(about, ways, module)
    # Now, so that two operators of one name are an error of the module that adds the second one.
    if hasattr(sys.modules.get("torch"), "compile"):
        with contextlib.suppress(ImportError):
            # From here on it is found without a call.
            vars(operator)["torch"] = operator.torch
    OPERATORS[key] = operator
    return operator
