"""Every path through every library: records of `measure.py`, callgrind's counts, the budgets.

Every number is the cost of a library's call less that of an empty call.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from build import (
    FLOOR,
    OPERATORS,
    OURS,
    SOURCES,
    build,
    build_all,
    build_capi,
    extension_size,
    modules,
)
from sections import counted_loop
from tables import Rows, Section, Unmeasured, number, table, target

# The paths on which libraries are compared: title, and dlbridge's budget as a multiple of the floor.
PATHS = {
    "numpy-in": ("import a NumPy array, read one element, drop", 1.10),
    "torch-in": ("import a PyTorch tensor, read, drop", 1.10),
    "jax-in": ("import a JAX array, read, drop", 0.40),
    "buffer-in": ("import a buffer (array.array), read, drop", None),
    "rust-share": ("create a tensor in Rust, read, drop", 1.3),
    "object-out": ("create a tensor, export it as a Python object", 1.5),
    "numpy-out": ("create a tensor, export it to NumPy", 1.10),
    "numpy-from-dlpack": ("create a tensor, export it to NumPy (from_dlpack)", 1.10),
    "numpy-from-class": ("the same, of a user's class", None),
    "torch-out": ("create a tensor, export it to PyTorch (from_dlpack)", None),
    "torch-out-exchange": ("the same by the C exchange API", None),
}
# Functions of the C library that allocate; all other allocators call one of them.
ALLOCATORS = {"malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"}


@dataclass
class Results:
    """Costs by path and library, versions, and notes on what could not be measured."""

    costs: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    calls: int = 0

    def cost(self, path: str, library: str) -> dict[str, float]:
        return self.costs.setdefault((path, library), {})

    def get(self, path: str, library: str, what: str) -> float | None:
        return self.costs.get((path, library), {}).get(what)

    def ratio(self, path: str, library: str) -> float | None:
        """The instructions of a path, as a multiple of the floor's."""
        own, floor = (self.get(path, who, "instructions") for who in (library, FLOOR))
        return own / floor if own is not None and floor else None

    def counts(self) -> dict[str, tuple[int, int | None]]:
        """The instructions of dlbridge and of the reference, by path."""
        found: dict[str, tuple[int, int | None]] = {}
        for path, library in self.costs:
            ours, other = (self.get(path, who, "instructions") for who in (OURS, FLOOR))
            if library == OURS and ours is not None:
                found[path] = round(ours), None if other is None else round(other)
        return found

    def peers(self) -> dict[tuple[str, str], tuple[str, int]]:
        """The other library that takes the fewest instructions, and its count, by environment and path."""
        found: dict[tuple[str, str], tuple[str, int]] = {}
        for (path, library), cost in self.costs.items():
            named = {"torch": "full", "jax": "jax"}
            key = named.get(path.split("-", 1)[0], "bare"), path
            count = round(cost.get("instructions", 0))
            if (
                library not in (FLOOR, OURS)
                and count
                and (key not in found or count < found[key][1])
            ):
                found[key] = shown(library), count
        return found

    def read_records(self, lines: str) -> None:
        for line in lines.splitlines():
            match line.split("\t"):
                case ["time", path, library, time]:
                    self.cost(path, library)["nanoseconds"] = float(time)
                case ["calls", number]:
                    self.calls = int(number)
                case ["version", name, version]:
                    self.versions[name] = version
                case ["note", note]:
                    self.note(note)
                case ["absent", name]:
                    way = f"cargo xtask bench python --with {name}"
                    self.note(f"{name} is not installed: {way}")
                case ["broken", library, reason]:
                    self.note(f"{shown(library)}: {reason}")
                case ["failed", path, library, reason]:
                    title = PATHS.get(path, (path,))[0]
                    self.note(f"{shown(library)}, {title}: {reason}")

    def note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def read_dumps(self, texts: Iterable[str]) -> None:
        """Adds callgrind's dumps, each labelled `path library work`, `empty` or `whole`."""
        dumps = dict(filter(None, map(read_dump, texts)))
        for label, work in dumps.items():
            path, library, kind = label.split(" ")
            empty = (0, 0) if kind == "whole" else dumps.get(f"{path} {library} empty")
            if kind != "empty" and empty:
                for what, more, less in zip(
                    ("instructions", "allocations"), work, empty, strict=True
                ):
                    self.cost(path, library)[what] = (more - less) / self.calls


def read_dump(text: str) -> tuple[str, tuple[int, int]] | None:
    """Label, instructions and allocations; None for a dump without a label."""
    label = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
    totals = re.findall(r"^totals: (\d+)", text, re.MULTILINE)
    if not label or not totals:
        return None
    # A name is written out at its first use, `cfn=(7) malloc`, and abbreviated to its number
    # afterwards, `cfn=(7)`. A recursive call is marked by `'2`.
    names: dict[str, str] = {}
    calls, callee = 0, ""
    for what, index, name, count in re.findall(
        r"^(?:(c?fn)=(\(\d+\))(?: (.*))?|calls=(\d+).*)$", text, re.MULTILINE
    ):
        if count:
            calls += int(count) if callee in ALLOCATORS else 0
        else:
            function = names.setdefault(index, name.split("'")[0])
            callee = function if what == "cfn" else callee
    return label[1], (int(totals[-1]), calls)


def shown(library: str) -> str:
    return library.replace("_", "-")


def measure(
    framework: str, libraries: list[str], script: Path, *, count: bool, sets: str, python: str
) -> str:
    """The records of one framework's paths, timed or under callgrind."""
    flags, folder = ["--sets", sets] if sets != "paths" else [], dumps(framework)
    command = [python, str(script), "--framework", framework]
    if count:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--quiet"]
        command = [*valgrind, f"--callgrind-out-file={folder / 'dump'}", *command]
        flags.append("--count")
    # Make runs reproducible: fixed hashes, one thread.
    settings = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    path = os.pathsep.join(filter(None, [str(modules()), os.environ.get("PYTHONPATH")]))
    settings |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    print(f"{'counting' if count else 'timing'} the paths of {framework}", flush=True)
    command += ["--libraries", ",".join(libraries), *flags]
    environment = os.environ | settings
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def dumps(framework: str) -> Path:
    return target() / "bench/callgrind" / framework


def measured(
    frameworks: list[str],
    libraries: list[str],
    records: str,
    *,
    time: bool,
    sets: str = "paths",
    python: str = sys.executable,
    script: Path = SOURCES / "measure.py",
) -> Results:
    """Times (if `time`) and counts the paths of each installed framework."""
    results = Results()
    results.read_records(records)
    for framework in frameworks:
        if time:
            results.read_records(
                measure(framework, libraries, script, count=False, sets=sets, python=python)
            )
            if framework not in results.versions:
                continue
        if not shutil.which("valgrind"):
            results.note("instructions are not counted: no valgrind: install your system's package")
            continue
        lines = measure(framework, libraries, script, count=True, sets=sets, python=python)
        results.read_records(lines)
        files = sorted(dumps(framework).glob("dump*"))
        results.read_dumps(file.read_text(errors="replace") for file in files)
    return results


# Calls of the package where NumPy is the only other package, and where frameworks are imported.
ENVIRONMENTS = {
    "bare": ("numpy", "paths,calls,package,operators"),
    "full": ("torch", "paths,calls,package,operators"),
    "jax": ("jax", "paths,calls,operators"),
}


def counted(bare: str) -> dict[tuple[str, str], tuple[int, int | None]]:
    """Counts dlbridge beside its references, with the Python of an environment that has NumPy alone and with this one."""
    if not shutil.which("valgrind"):
        raise Unmeasured("no valgrind: install your system's package")
    libraries, _ = build_all(quick=True)
    build(OPERATORS)
    counts: dict[tuple[str, str], tuple[int, int | None]] = {}
    if found := counted_loop(build_capi()):
        counts["bare", "c-round-trip"] = found, None
    for name, (framework, sets) in ENVIRONMENTS.items():
        python = bare if name == "bare" else sys.executable
        results = measured([framework], libraries, "", time=False, sets=sets, python=python)
        for note in results.notes:
            print(note)
        counts |= {(name, path): both for path, both in results.counts().items()}
    return counts


def package_table(results: Results) -> str:
    """The calls of the package beside NumPy's."""
    rows: Rows = []
    for path in dict.fromkeys(path for path, _ in results.costs):
        if path in PATHS or path.startswith("call-"):
            continue
        cells = [f"`{path}`"]
        for what in ("instructions", "nanoseconds"):
            ours, other = (results.get(path, who, what) for who in (OURS, FLOOR))
            ratio = ours / other if ours and other else None
            cells += [number(ours, ",.0f"), number(other, ",.0f"), number(ratio, ".2f")]
        rows.append(cells)
    heads = "call | instructions | NumPy | x | ns | NumPy | x"
    return table(heads, "lrrrrrr", rows)


def paths_table(results: Results, libraries: list[str]) -> str:
    rows: Rows = []
    for path, (title, budget) in PATHS.items():
        having = [library for library in libraries if (path, library) in results.costs]
        rows += [row(results, path, library, budget) for library in having]
        if having:
            rows[-len(having)][0] = title
    heads = "path | library | instructions | x floor | allocations | ns | budget | "
    return table(heads, "llrrrrrl", rows)


def paths(given: argparse.Namespace) -> Section:
    """The section of all paths."""
    libraries, records = build_all(quick=given.quick)
    results = measured(["numpy", "torch", "jax"], libraries, records, time=True)
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results.versions.items()))
    notes = "".join(f"- {note}\n" for note in results.notes)
    body = f"""\
Each number is the cost of one call less that of an empty call, with arrays of `float32[2, 3]`
([benches/python](../benches/python/README.md) has the details). The floor is a hand-written C extension that does the minimum;
`x floor` and `budget` are multiples of its instructions. A path lists only the libraries that support it.

{versions}

{paths_table(results, libraries)}
{notes}"""

    def draw() -> Any:
        from charts import Bar
        from charts import bars as draw_bars

        panels = []
        for path, (title, budget) in PATHS.items():
            found = {who: results.ratio(path, who) for who in libraries if who != FLOOR}
            ratios = [(ratio, who) for who, ratio in found.items() if ratio is not None]
            ratios.sort(key=lambda bar: (bar[1] != OURS, bar[0]))
            if len(ratios) > 1:
                named: list[Bar] = [(shown(who), [(ratio, who == OURS)]) for ratio, who in ratios]
                panels.append((title, named, budget))
        least = "a hand-written C extension, the floor (1)"
        subtitle = f"instructions, as multiples of {least}; logarithmic axis; dashed: the budget"
        return draw_bars("Cost of sharing an array in Python", subtitle, panels)

    return Section("Python", body, "python paths", "paths", draw, results.peers())


# Whole calls of functions of small arrays: title, and whether the other library has them.
CALLS = {
    "call-one": "a number of one array",
    "call-two": "a number of two arrays",
    "call-new": "a new array of one",
    "call-new-tensor": "the same, as a `dlbridge.Tensor`",
    "call-two-new": "a new array of two",
    "call-write": "one array in place",
    "call-write-array": "one array in place, by ndarray",
    "call-slice": "a number of one slice",
    "call-two-slices": "a number of two slices",
    "call-slice-new": "a new array of a slice",
    "call-matrix": "a number of a matrix of ndarray",
    "call-bytes": "a number of `bytes`; by PyO3's `PyBuffer`",
    "call-two-large": "a number of two arrays of 1,000",
    "call-five": "a number of five arrays",
    "call-five-axes": "a number of an array of five axes",
    "call-list-2": "a number of a list of two arrays",
    "call-list-50": "a number of a list of 50",
    "call-like": "a number of an array or a list: `PyTensorLike`",
    "call-keep": "a number of a tensor that Rust keeps",
    "call-allocate": "a new array, filled in place: `Allocator`",
}


# Profiles of cargo: the guide's for wheels, the same with the Python crates compiled for size, and that of
# `cargo build --release`.
WHEEL = {"LTO": "fat", "CODEGEN_UNITS": "1", "STRIP": "symbols", "DEBUG": "0"}
SMALL = [f'--config=profile.release.package.{it}.opt-level="s"' for it in ("dlbridge-pyo3", "pyo3")]
PROFILES: dict[str, tuple[dict[str, str], list[str]]] = {
    "wheel": (WHEEL, []),
    "wheel, for size": (WHEEL, SMALL),
    "release": ({"LTO": "false", "CODEGEN_UNITS": "16", "DEBUG": "0"}, []),
}


def extension_sizes() -> str:
    """The sizes of three extensions with the same functions: by dlbridge, without its default features, by rust-numpy."""
    rows: Rows = []
    for name, (profile, options) in PROFILES.items():
        builds = [
            extension_size(OURS, profile, options, "whole"),
            extension_size(OURS, profile, options),
            extension_size("rust_numpy", profile, []),
        ]
        scales = {"file, KB": 1000, "in a wheel, KB": 1000, "CPU seconds to compile": 1}
        for (what, scale), values in zip(scales.items(), zip(*builds, strict=True), strict=True):
            whole, lean, other = (value / scale for value in values)
            cells = (whole, lean, other, whole - other, lean - other)
            rows.append([name, what, *(f"{cell:,.0f}" for cell in cells)])
    heads = "profile |  | dlbridge | without features | rust-numpy | more | more without features"
    return table(heads, "llrrrrr", rows)


def calls() -> Section:
    """Whole calls beside rust-numpy, and beside the floor of the protocol."""
    rivals = [(FLOOR, "", "C"), ("rust_numpy", "", "rust-numpy")]
    rivals.append(("rust_numpy", "-unchecked", "rust-numpy, unchecked"))
    for module in ("meter", FLOOR, OURS, "rust_numpy"):
        build(module)
    tables: dict[str, Rows] = {"instructions": [], "nanoseconds": []}
    names = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX"}
    of_package, peers = "", {}
    for framework, name in names.items():
        libraries = [OURS, "rust_numpy" if framework == "numpy" else FLOOR]
        sets = "calls,package" if framework == "numpy" else "calls"
        results = measured([framework], libraries, "", time=True, sets=sets)
        if framework == "numpy":
            of_package, peers = package_table(results), results.peers()
        for what, rows in tables.items():
            for path, title in CALLS.items():
                own = results.get(path, OURS, what)
                if own is None:
                    continue
                cells = [title, name, number(own, ",.0f")]
                for library, suffix, _ in rivals:
                    other = results.get(path + suffix, library, what)
                    ratio = own / other if other else None
                    cells += [number(other, ",.0f"), number(ratio, ".2f")]
                rows.append(cells)
    heads = "function | arrays | dlbridge | " + " | ".join(f"{it} | x" for *_, it in rivals)
    shown = "\n".join(
        f"{what.capitalize()}:\n\n{table(heads, 'll' + 'r' * 7, rows)}"
        for what, rows in tables.items()
    )
    body = f"""\
A whole call of a function of arrays of `float64[4]`, from Python's vectorcall to the result, which is dropped. rust-numpy uses the same PyO3. Its
borrows are checked (`PyReadonlyArray`), or left out (`&Bound<PyArray>` with `unsafe`). C is a hand-written extension that does the minimum of the
protocol: the C exchange API for PyTorch, `__dlpack__` for JAX. `x` is dlbridge's number as a multiple of the one before it.

{shown}
Public calls of the Python package, beside what a NumPy user writes:

{of_package}
Size of an extension of these functions alone, built as [the guide](guide/extension.md) says and by `cargo build --release`:

{extension_sizes()}"""
    return Section("Python: calls", body, "calls", peers=peers)


def row(results: Results, path: str, library: str, budget: float | None) -> list[str]:
    ratio = results.ratio(path, library)
    limit = budget if library == OURS else None
    verdict = "" if limit is None or ratio is None else "ok" if ratio <= limit else "over"
    costs = [
        results.get(path, library, what) for what in ("instructions", "allocations", "nanoseconds")
    ]
    numbers = [number(costs[0], ",.0f"), number(ratio, ".2f"), number(costs[1], ".0f")]
    return ["", shown(library), *numbers, number(costs[2], ".1f"), number(limit, ".2f"), verdict]
