"""The Python object of an operator. It imports little, because every extension module runs this."""

import contextlib
import importlib
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
        self.__doc__, self.name, self.make = make.__doc__, make.__name__, make

    def maker(self, operator):
        """Makes the attribute of an operator. It has no arguments, because `torch.compile` calls it while it traces."""
        framework = self.name.replace("ufunc", "numpy")

        def made():
            if self.name in operator._made:
                return
            # Before the lock, because another thread may be importing it, and need an operator.
            importlib.import_module(framework)
            with LOCK:
                if self.name not in operator._made:
                    operator._made[self.name] = self.make(operator)

        # In place of tracing it.
        made._dynamo_marked_constant = True
        return made

    def __get__(self, operator, owner=None):
        if operator is None:
            return self
        operator._makers[self.name]()
        return operator._made[self.name]


class Operator:
    """A function in Rust: an operator of PyTorch (`torch`) and of JAX (`jax`), NumPy's universal function (`ufunc`)."""

    def __init__(self, about, ways, module):
        self._about, self._module, self._made = about, module, {}
        self._eager, self._register, self._targets = ways[:3]
        self._make_ufunc, self._half = ways[3:]
        self._names = [name for name, _ in about["parameters"]]
        self._count, self._arity = len(about["inputs"]), len(self._names)
        onces = Operator.torch, Operator.jax, Operator.ufunc
        self._makers = {once.name: once.maker(self) for once in onces}
        self.__name__ = self.__qualname__ = about["name"]
        self.__module__, self.__doc__ = about["module"], about["doc"]

    @property
    def __signature__(self):
        import inspect

        def parameter(name):
            empty = inspect.Parameter.empty
            default = None if name in self._about["defaults"] else empty
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            return inspect.Parameter(name, kind, default=default)

        return inspect.Signature(list(map(parameter, self._names)))

    @Once
    def torch(self):
        """The operator of PyTorch, `torch.ops.NAMESPACE.NAME`."""
        rules = lambda: self._half("torch_rules")
        make = self._half("torch").make_torch
        return make(self._about, self._register, self._module, rules)

    @Once
    def jax(self):
        """The function of JAX, for `jit`, `vmap` and `grad`."""
        return self._half("jax").make_jax(self._about, self._targets, self._module)

    @Once
    def ufunc(self):
        """The universal function of NumPy: `out=`, `axes=`, `where=`, other dtypes are converted."""
        return self._make_ufunc()

    def __call__(self, *arguments, **keywords):
        if keywords or len(arguments) != self._arity:
            arguments = self._bound(arguments, keywords)
        tensors = arguments[: self._count]
        # A module that another thread is importing has no such class yet, and no tensors.
        torch = getattr(sys.modules.get("torch"), "Tensor", ())
        for tensor in tensors:
            if isinstance(tensor, torch):
                return self._with_torch(arguments, torch)
        jax = getattr(sys.modules.get("jax"), "Array", ())
        for tensor in tensors:
            if isinstance(tensor, jax):
                function = self._made.get("jax") or self.jax
                return function(*arguments)
        return self._eager(*arguments)

    def _bound(self, arguments, keywords):
        """All arguments in the order of the parameters."""
        wrong = lambda words: TypeError(f"{self.__name__}: {words}")
        if len(arguments) > self._arity:
            raise wrong(f"expected {self._arity} arguments, found {len(arguments)}")
        bound, left = list(arguments), dict(keywords)
        for name in self._names[len(arguments) :]:
            if name not in left and name not in self._about["defaults"]:
                raise wrong(f"missing a required argument: {name!r}")
            bound.append(left.pop(name, None))
        for name in left:
            kind = "several values for" if name in self._names else "an unexpected"
            raise wrong(f"got {kind} argument {name!r}")
        return tuple(bound)

    def _with_torch(self, arguments, torch):
        tensors = arguments[: self._count]
        try:
            operator = self.torch
        except ImportError:
            if any(getattr(x, "requires_grad", False) for x in tensors):
                raise
            return self._eager(*arguments)
        try:
            return operator(*arguments)
        except RuntimeError:
            for (name, kind), tensor in zip(self._about["parameters"], tensors):
                is_absent = tensor is None and kind == "optional"
                if not is_absent and not isinstance(tensor, torch):
                    break
            else:
                raise
        found = f"{type(tensor).__module__}.{type(tensor).__qualname__}; pass torch.as_tensor({name})"
        raise TypeError(
            f"{self.__name__}: {name}: expected a torch.Tensor as the other arguments are, "
            f"found {'None' if tensor is None else found}"
        )

    def __reduce__(self):
        # By its name, as functions are: for `copy.deepcopy`, `pickle` and `torch.save`.
        return self.__name__

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
