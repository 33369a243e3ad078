"""Measures every path through every library with one framework's arrays, and whole calls.

`cargo xtask bench python` runs this, with the built modules on PYTHONPATH, once for time and once
under callgrind. Each printed line is a tab-separated record; README.md lists them.
"""

import argparse
import array
import faulthandler
import gc
import importlib
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import bench_meter
import numpy as np

WARM_UP = 200
# Calls counted by callgrind; nanoseconds of a timed round, and the number of rounds.
COUNTED = 1000
ROUND_NS = 1e6
ROUNDS = 31


@dataclass
class Work:
    """`then(function(*arguments))`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    then: Callable[[Any], Any] | None = None

    def calls(self, number: int) -> tuple[Any, ...]:
        return self.function, self.arguments, self.then, number


@dataclass
class Case:
    """One path through one library, and the empty call whose cost is subtracted."""

    work: Work
    # None for a whole call.
    empty: Work | None
    path: str = ""
    library: str = ""


# Returns the case of a path in a module, or None if the module does not have the path.
Finder = Callable[[Any], Case | None]


def call(
    names: str, *arguments: Any, then: Callable[[Any], Any] | None = None, is_whole: bool = False
) -> Finder:
    """Calls the first of the named functions that a module has."""

    def find(module: Any) -> Case | None:
        for name in names.split():
            if hasattr(module, name):
                idle = (module.ignore if arguments else module.nothing, arguments)
                work = Work(getattr(module, name), arguments, then)
                return Case(work, None if is_whole else Work(*idle))
        return None

    return find


def either(*finders: Finder) -> Finder:
    """The case of the first finder that returns one."""
    return lambda module: next((case for find in finders if (case := find(module))), None)


def matrix() -> Any:
    return np.arange(6, dtype=np.float32).reshape(2, 3) + np.float32(1.5)


X, Y = np.array([0.75, 0.25, 0.5, 0.0]), np.array([0.75, 1.25, 1.25, 0.0])
# Whole calls of functions of small arrays: the arguments.
ARGUMENTS = {
    "call-one": (X,),
    "call-two": (X, Y),
    "call-new": (X,),
    "call-new-tensor": (X,),
    "call-two-new": (X, Y),
    "call-write": (X,),
    "call-write-array": (X,),
    "call-slice": (X,),
    "call-two-slices": (X, Y),
    "call-slice-new": (X,),
    "call-matrix": (X.reshape(2, 2),),
    "call-bytes": (b"\1\1\1\0",),
    "call-two-large": (np.append(X, np.zeros(996)), np.append(Y, np.zeros(996))),
    "call-five": (X, *[np.zeros(4)] * 4),
    "call-five-axes": (X.reshape(1, 2, 1, 2, 1),),
    "call-like": (X,),
    "call-like-list": ([0.75, 0.25, 0.5, 0.0],),
    "call-keep": (X,),
    "call-allocate": (X,),
}
# Those whose arguments are arrays.
ARRAYS = ARGUMENTS.keys() - {"call-bytes", "call-like-list"}
# The C floor has a function for each protocol.
INPUTS = {"call-one": "call_one", "call-two": "call_two"}


def calls(names: dict[str, str], convert: Callable[[Any], Any]) -> dict[str, Finder]:
    """Whole calls, by path: the names of the function."""
    given = {path: map(convert, ARGUMENTS[path.removesuffix("-unchecked")]) for path in names}
    return {path: call(names[path], *given[path], is_whole=True) for path in names}


def function(path: str) -> str:
    """The name of a path's function."""
    return path.replace("-", "_").removesuffix("_large").replace("_like_list", "_like")


def numpy_calls() -> dict[str, Finder]:
    names = {path: function(path) for path in ARGUMENTS}
    names |= {f"{path}-unchecked": f"{name}_unchecked" for path, name in names.items()}
    lists = {
        path: call("call_list", [X, *[np.zeros(4) for _ in range(more)]], is_whole=True)
        for path, more in {"call-list-2": 1, "call-list-50": 49}.items()
    }
    return calls(names, lambda x: x) | lists


def torch_calls() -> dict[str, Finder]:
    import torch

    torch.set_num_threads(1)
    names = {path: function(path) for path in ARRAYS} | {
        path: f"{name}_exchange {name}" for path, name in INPUTS.items()
    }
    return calls(names, torch.from_numpy)


def jax_calls() -> dict[str, Finder]:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    # A result of JAX's own is made in Python, whose count differs from run to run.
    reads = [path for path in ARRAYS if not re.search("write|new$|allocate", path)]
    return calls({path: function(path) for path in reads}, jax.numpy.asarray)


def numpy_paths() -> dict[str, Finder]:
    x = matrix()
    exported = call("make_exporter make", then=np.from_dlpack)
    return {
        "numpy-in": call("read", x),
        "rust-share": call("share"),
        "rust-sum": call("rust_sum"),
        "rust-copy": call("rust_copy"),
        "rust-round-trip": call("rust_round_trip"),
        "object-out": call("make"),
        "numpy-out": either(call("make_numpy"), exported),
        "numpy-from-dlpack": exported,
        "numpy-from-class": call("make_exporter make_class make", then=np.from_dlpack),
        "buffer-in": call("read_line", array.array("f", [1.5, 2.5])),
    }


def torch_paths() -> dict[str, Finder]:
    import torch

    torch.set_num_threads(1)
    x = torch.from_numpy(matrix())
    exported = call("make_exporter make", then=torch.from_dlpack)
    return {
        "torch-in": call("read_exchange read", x),
        "torch-out": either(call("make_torch"), exported),
        "torch-out-exchange": call("make_exchange", x),
    }


def jax_paths() -> dict[str, Finder]:
    import jax

    jax.config.update("jax_platforms", "cpu")
    x = jax.numpy.asarray(matrix()).block_until_ready()
    return {"jax-in": call("read", x)}


FRAMEWORKS = {"numpy": numpy_paths, "torch": torch_paths, "jax": jax_paths}
CALLS = {"numpy": numpy_calls, "torch": torch_calls, "jax": jax_calls}
SETS = {"paths": FRAMEWORKS, "calls": CALLS}


class Holder:
    """An object that exports a bare capsule, for consumers that accept only objects."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def check(result: Any) -> None:
    """Raises unless the result is the one expected of every library."""
    if result is None:  # in place, or an empty call
        return
    if not isinstance(result, float):
        array = np.from_dlpack(result if hasattr(result, "__dlpack__") else Holder(result))
        if array.shape not in ((2, 3), (4,)):
            raise AssertionError(f"expected a result of shape (2, 3) or (4,), found {array.shape}")
        result = float(array.flat[0])
    if result != 1.5:
        raise AssertionError(f"expected the result 1.5, found {result}")


def try_out(work: Work) -> None:
    result = work.function(*work.arguments)
    check(work.then(result) if work.then else result)
    bench_meter.time(*work.calls(WARM_UP))


def cases(paths: dict[str, Finder], libraries: list[str]) -> Iterator[Case]:
    """Yields the cases that work, and records the others."""
    for library in libraries:
        try:
            module = importlib.import_module(f"bench_{library}")
        except Exception as error:
            record("broken", library, reason(error))
            continue
        for path, find in paths.items():
            case = find(module)
            if case is None:
                continue
            case.path, case.library = path, library
            try:
                try_out(case.work)
                if case.empty:
                    try_out(Work(case.empty.function, case.empty.arguments, lambda _: None))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # PyO3 raises a panic as one
                record("failed", path, library, reason(error))
            else:
                yield case


def package_cases() -> Iterator[Case]:
    """The calls of the package, and NumPy's in place of the floor's."""
    import package

    for path, ways in package.calls().items():
        for library, way in zip(("dlbridge", "floor"), ways, strict=True):
            if way:
                yield Case(Work(*way), None, path, library)


def operator_cases(framework: str) -> Iterator[Case]:
    """Calls of operators in Rust, and of the framework's own product in place of the floor's."""
    import bench_operators as ours

    x = np.ones(4, np.float32)
    if framework == "numpy":
        factor = np.array(2.0)
        rows = {
            "operator": (ours.scale.ufunc, np.multiply, x, factor),
            "operator-each": (ours.scale_each.ufunc, np.multiply, x, factor),
            "operator-call": (ours.scale, np.multiply, x, 2.0),
        }
    elif framework == "torch":
        import torch

        plain, many = torch.from_numpy(x), torch.ones(100, 4)
        rows = {
            "operator": (ours.scale.torch, torch.mul, plain, 2.0),
            "operator-rows": (ours.scale.torch, torch.mul, many, 2.0),
            "operator-call": (ours.scale, torch.mul, plain, 2.0),
            "operator-gradient": (
                *(ours.scale_with_gradient.torch, torch.mul),
                *(torch.ones(4, requires_grad=True), 2.0),
            ),
        }
    else:
        import jax

        jit = [jax.jit(one) for one in (lambda x: ours.scale.jax(x, 2.0), lambda x: x * 2)]
        rows = {"operator": (*jit, jax.numpy.asarray(x))}
    for path, (function, reference, *arguments) in rows.items():
        for library, one in (("dlbridge", function), ("floor", reference)):
            yield Case(Work(one, tuple(arguments)), None, path, library)


def count_import() -> None:
    """Counts `import dlbridge`. The count of all others is that of a thousand calls."""
    bench_meter.start()
    once = (lambda: importlib.import_module("dlbridge"), (), None, 1)
    bench_meter.count(*once, "import(thousands) dlbridge whole")


def measure_time(todo: list[Case]) -> None:
    """Medians of rounds, in which the libraries take turns."""
    for path in dict.fromkeys(case.path for case in todo):
        turns = [(case, calls_per_round(case), []) for case in todo if case.path == path]
        for _ in range(ROUNDS):
            for case, number, times in turns:
                spent = bench_meter.time(*case.work.calls(number))
                idle = bench_meter.time(*case.empty.calls(number)) if case.empty else 0
                times.append(spent - idle)
        for case, _, times in turns:
            record("time", path, case.library, f"{statistics.median(times):.1f}")


def calls_per_round(case: Case) -> int:
    return max(10, int(ROUND_NS / bench_meter.time(*case.work.calls(WARM_UP))))


def count(todo: list[Case]) -> None:
    bench_meter.start()
    for case in todo:
        works = {"work": case.work, "empty": case.empty} if case.empty else {"whole": case.work}
        for kind, work in works.items():
            # The first calls may run code that no later one does.
            bench_meter.time(*work.calls(WARM_UP))
            # Python's allocator takes a new pool for an object if all are full, and returns the
            # pool with its only object. The measured ones get places between these instead.
            kept = [work.function(*work.arguments) for _ in range(16)]
            del kept[::2]
            bench_meter.count(*work.calls(COUNTED), f"{case.path} {case.library} {kind}")
            del kept
    record("calls", str(COUNTED))


def record(*words: str) -> None:
    print(*words, sep="\t", flush=True)


def reason(error: BaseException) -> str:
    """The first line of an error."""
    text = str(error).strip() or "no message"
    return f"{type(error).__name__}: {text.splitlines()[0]}".replace("\t", " ")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the paths of one framework.")
    parser.add_argument("--framework", choices=FRAMEWORKS, required=True)
    parser.add_argument("--libraries", required=True, help="comma-separated names")
    parser.add_argument("--sets", default="paths", help="of paths, calls, package and operators")
    parser.add_argument("--count", action="store_true", help="count instead of timing")
    given = parser.parse_args()
    # A crashing library ends the process; the traceback names it.
    faulthandler.enable()
    gc.disable()
    names = given.sets.split(",")
    try:
        paths = {}
        for name in set(names) & SETS.keys():
            paths |= SETS[name][given.framework]()
    except ImportError:
        record("absent", given.framework)
        return
    record("version", given.framework, importlib.import_module(given.framework).__version__)
    if given.count and "package" in names:
        count_import()
    todo = list(cases(paths, given.libraries.split(",")))
    if "package" in names:
        todo += package_cases()
    if "operators" in names:
        todo += operator_cases(given.framework)
    if given.count:
        count(todo)
    else:
        measure_time(todo)


if __name__ == "__main__":
    main()
