"""The section on operators: what a call costs if the operator is in Rust, C++, C or Python."""

import importlib.util
import shutil
from pathlib import Path

from build import C_FLAGS, SOURCES, build, compile_with, modules, run
from paths import Results, measured
from tables import ROOT, Rows, Section, Unmeasured, number, table, target

FOLDER = SOURCES / "operators"
# The ways of calling: title, and the goal as a multiple of the floor.
WAYS = {
    "torch": ("PyTorch, an operator without a gradient", None),
    "torch-rows": ("PyTorch, 20,000 vectors of four", None),
    "torch-with-gradient": ("PyTorch, an operator that has one, of a tensor that needs none", 1.1),
    "torch-gradient": ("the same, of a tensor that requires grad: the graph is recorded", None),
    "torch-compile": ("the same inside `torch.compile`, between two additions", 1.1),
    "torch-cuda": ("PyTorch on CUDA, eager", 1.3),
    "torch-cuda-gradient": ("the same, of a tensor that requires grad", None),
    "torch-cuda-compile": ("the same inside `torch.compile`, between two additions", 1.3),
    "jax-cuda": ("JAX on CUDA, `jit`", 1.3),
    "jax": ("JAX, `jit`", 1.1),
    "jax-call": ("JAX, called without `jit`", None),
    "jax-loop": ("JAX, 1,000 calls in one compiled loop", None),
    "numpy": ("NumPy, one vector, by a generalised ufunc", 1.1),
    "numpy-each": ("NumPy, one vector, by a ufunc of elements", 1.1),
    "numpy-rows": ("NumPy, 1,000 vectors, by a generalised ufunc", None),
}
# The implementations. The floor of each way comes first.
NAMES = {
    "torch": {"floor": "C++: `TORCH_LIBRARY`", "torch-stable": "C++: PyTorch's stable ABI, boxed"},
    "jax": {"floor": "C++: a handler that does nothing", "ffi": "C++: the same operator"},
    "numpy": {"floor": "C"},
}
COMMON = {
    "custom-op": "`torch.library.custom_op`",
    "dlbridge": "dlbridge",
    "dlbridge-call": "dlbridge, as `scale(x, 2.0)`",
}
CPP = ["-O3", "-shared", "-fPIC", "-Wall"]


def included(package: str, *folders: str) -> list[str]:
    """The compiler's flags for the headers in a package."""
    found = importlib.util.find_spec(package)
    if not found or not found.origin:
        raise Unmeasured(
            f"{package} is not installed: cargo xtask bench operators --with {package}"
        )
    return [
        word for folder in folders for word in ("-isystem", str(Path(found.origin).parent / folder))
    ]


def build_operators() -> None:
    import numpy as np

    build("meter")
    build("operators")
    libraries = str(Path(included("torch", "lib")[1]))
    flags = included("torch", "include", "include/torch/csrc/api/include")
    for name in ("torch", "torch_stable"):
        end = ["-L", libraries, "-lc10", "-ltorch_cpu"]
        out = modules() / f"bench_{name}.so"
        run("c++", *CPP, "-std=c++20", *flags, FOLDER / f"{name}.cpp", "-o", out, *end)
    flags = included("jaxlib", "include")
    run("c++", *CPP, "-std=c++17", *flags, FOLDER / "xla.cpp", "-o", modules() / "bench_xla.so")
    compile_with("cc", [*C_FLAGS, "-isystem", np.get_include()], [FOLDER / "ufunc.c"], "ufunc")


def cuda_runtime() -> Path:
    """The library of CUDA's runtime, from NVIDIA's packages."""
    packages = Path(included("torch", "include")[1]).parents[1] / "nvidia"
    for library in sorted(packages.glob("*/lib/libcudart.so.*")):
        return library
    raise Unmeasured("nvidia-cuda-runtime is not installed, which a PyTorch for CUDA brings")


def build_for_cuda() -> None:
    """The same operator for CUDA, in Rust and C++: it builds without a GPU."""
    build("meter")
    words = ["cargo", "build", "--quiet", "--profile", "wheel", "--package"]
    run(*words, "dlbridge-example-cuda-operators")
    shutil.copy(target() / "wheel/libcuda_operators.so", modules() / "cuda_operators.so")
    runtime, libraries = cuda_runtime(), str(Path(included("torch", "lib")[1]))
    ptx = ROOT / "examples/cuda-operators/src/scale.ptx"
    flags = [*CPP, f'-DSCALE_PTX="{ptx}"']
    end = [runtime, f"-Wl,-rpath,{runtime.parent}"]
    own = included("torch", "include", "include/torch/csrc/api/include")
    more = ["-L", libraries, "-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda"]
    out = modules() / "bench_torch_cuda.so"
    run("c++", *flags, "-std=c++20", *own, FOLDER / "torch_cuda.cpp", "-o", out, *more, *end)
    own, out = included("jaxlib", "include"), modules() / "bench_xla_cuda.so"
    run("c++", *flags, "-std=c++17", *own, FOLDER / "xla_cuda.cpp", "-o", out, *end)


def on_gpu() -> str:
    """What a call on a GPU costs beside C++: a table, or the reason why there is none."""
    build_for_cuda()
    import torch

    if not torch.cuda.is_available():
        return "skipped: built, but no GPU to run on: torch.cuda.is_available() is False"
    script = FOLDER / "calls.py"
    results = measured(["torch-cuda", "jax-cuda"], ["all"], "", time=True, script=script)
    names = NAMES["torch"] | COMMON
    rows = [row for way in WAYS if "-cuda" in way for row in rows_of(results, way, names)]
    heads = "way | operator | ns | x floor | instructions | x floor | goal | "
    notes = "".join(f"\n- {note}" for note in results.notes)
    return f"{torch.cuda.get_device_name()}\n\n{table(heads, 'llrrrrrl', rows)}{notes}"


def rows_of(results: Results, way: str, names: dict[str, str]) -> Rows:
    title, goal = WAYS[way]
    shown: Rows = []
    for library, name in names.items():
        costs = [results.get(way, library, what) for what in ("nanoseconds", "instructions")]
        if costs[0] is None:
            continue
        floors = [results.get(way, "floor", what) for what in ("nanoseconds", "instructions")]
        ratios = [
            own / floor if own and floor else None for own, floor in zip(costs, floors, strict=True)
        ]
        # Instructions do not depend on other programs.
        ratio = ratios[1] or ratios[0]
        verdict = (
            ""
            if library != "dlbridge" or goal is None or not ratio
            else "ok"
            if ratio <= goal
            else "over"
        )
        cells = [
            number(costs[0], ",.0f"),
            number(ratios[0], ".2f"),
            number(costs[1], ",.0f"),
            number(ratios[1], ".2f"),
        ]
        shown.append(
            [
                "" if shown else title,
                name,
                *cells,
                f"{goal:.2f}" if goal and library == "dlbridge" else "-",
                verdict,
            ]
        )
    return shown


def section() -> Section:
    build_operators()
    script = FOLDER / "calls.py"
    results = measured(list(NAMES), ["all"], "", time=True, script=script)
    cells: Rows = []
    for framework, names in NAMES.items():
        for way in (way for way in WAYS if way.split("-")[0] == framework):
            cells += rows_of(results, way, names | COMMON)
    notes = "".join(f"\n- {note}" for note in results.notes)
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results.versions.items()))
    heads = "way | operator | ns | x floor | instructions | x floor | goal | "
    body = f"""\
An operator that multiplies four `float32` by a number, in Rust ([dlbridge-operators](guide/operators.md)) and in other languages
(`benches/python/operators`). The number is the cost of a whole call from Python, so that of the framework's own dispatcher is in all rows.
`x floor` is a multiple of the first row of each way, `goal` what dlbridge is to reach. The median of 31 rounds, in which they take turns; instructions by callgrind.
With `TORCH_LIBRARY` the gradient is C++ too (`torch::autograd::Function`); with the stable ABI, which has no autograd, it is registered in Python.

{versions}

{table(heads, "llrrrrrl", cells)}{notes}"""

    return Section("Operators", body, "operators")
