"""Builds the modules that are measured in Python, into `target/bench/python`.

A module that cannot be built is skipped and noted with the compiler's first error.
"""

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
import sysconfig
import zlib
from pathlib import Path

from tables import ROOT, Unmeasured, target

SOURCES = ROOT / "benches/python"
FLOOR, OURS, OPERATORS = "floor", "dlbridge", "operators"
PEERS = ["dlpark", "pyo3_dlpack", "rust_numpy", "nanobind", "tvm_ffi"]
# The crate or package that a module is built from, if its name differs.
PACKAGES = {"rust_numpy": "numpy", "tvm_ffi": "apache-tvm-ffi"}
# The flags of an optimised extension module, with warnings.
C_FLAGS = ["-O3", "-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall"]
# The flags of nanobind's own release build.
CPP_FLAGS = [
    "-O3",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-DNDEBUG",
    "-DNB_COMPACT_ASSERTIONS",
]


def modules() -> Path:
    return target() / "bench/python"


def file_of(module: str) -> Path:
    """The path of a module, after removing the file: a loaded one must not be overwritten."""
    file = modules() / f"bench_{module}.so"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    return file


def run(*command: str | Path, **settings: str) -> None:
    """Runs a compiler; raises `Unmeasured` with its first error."""
    words = [f"{name}={value}" for name, value in settings.items()]
    print("$", *words, *command, flush=True)
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stderr)
        lines = [line.strip() for line in done.stderr.splitlines()] or ["no message"]
        errors = [line for line in lines if line.startswith("error") or ": error" in line]
        raise Unmeasured((errors or lines)[0].replace(f"{ROOT}/", ""))


def compile_with(compiler: str, flags: list[str], files: list[Path], module: str) -> None:
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        way = "install Python's development package (Debian and Ubuntu: python3-dev)"
        raise Unmeasured(f"no {include}/Python.h: {way}")
    run(compiler, *flags, "-I", include, *files, "-o", file_of(module))


def build(module: str) -> None:
    """Builds one module."""
    peer = SOURCES / "peers" / module
    if module in ("meter", FLOOR):
        compile_with("cc", C_FLAGS, list((SOURCES / module).glob("*.c")), module)
    elif module in (OURS, OPERATORS):
        package = "dlbridge-bench" if module == OURS else "dlbridge-bench-operators"
        run(*["cargo", "build", "--quiet", "--profile", "wheel", "--package", package])
        shutil.copy(target() / f"wheel/libbench_{module}.so", file_of(module))
    elif module == "nanobind":
        try:
            import nanobind
        except ImportError as error:
            raise Unmeasured(str(error)) from None
        package = Path(nanobind.__path__[0])
        folders = [f"-I{package / folder}" for folder in ("include", "ext/robin_map/include")]
        files = [package / "src/nb_combined.cpp", *peer.glob("*.cpp")]
        compile_with("c++", CPP_FLAGS + folders, files, module)
    elif (peer / "Cargo.toml").is_file():
        # A workspace of its own: two versions of PyO3 cannot share a lock file.
        folder = target() / "bench/peers"
        words = ["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path"]
        run(*words, peer / "Cargo.toml", "--target-dir", folder)
        shutil.copy(folder / f"release/libbench_{module}.so", file_of(module))
    else:
        modules().mkdir(parents=True, exist_ok=True)
        shutil.copy(peer / f"bench_{module}.py", modules())


def build_capi() -> Path:
    """Builds a program in C beside the C library."""
    run(*["cargo", "build", "--quiet", "--profile", "wheel", "--package", "dlbridge-capi"])
    library, program = target() / "wheel/libdlbridge_capi.a", target() / "bench/round_trip"
    flags = ["-O3", "-Wall", "-I", ROOT / "crates/dlbridge-capi/include"]
    source = ROOT / "crates/dlbridge-capi/tests/programs/round_trip.c"
    run("cc", *flags, source, library, "-lpthread", "-ldl", "-lm", "-o", program)
    return program


def extension_size(
    module: str, profile: dict[str, str], options: list[str], *features: str
) -> tuple[int, int, float]:
    """Bytes of an extension of the calls alone, and of it in a wheel, which is a ZIP archive. CPU seconds to compile all of it."""
    manifest = SOURCES / ("dlbridge" if module == OURS else f"peers/{module}")
    folder = target() / "bench/sizes"
    # A build from nothing has the seconds.
    shutil.rmtree(folder, ignore_errors=True)
    settings = {f"CARGO_PROFILE_RELEASE_{name}": value for name, value in profile.items()}
    words = ["cargo", "build", "--quiet", "--release", "--locked", "--no-default-features"]
    where = ["--manifest-path", manifest / "Cargo.toml", "--target-dir", folder]
    before = os.times()
    run(*words, *options, "--features", ",".join(features), *where, **settings)
    after = os.times()
    seconds = sum(after[2:4]) - sum(before[2:4])
    content = (folder / f"release/libbench_{module}.so").read_bytes()
    return len(content), len(zlib.compress(content)), seconds


def version(module: str) -> str | None:
    """The version of the package that a peer's module is built from."""
    package = PACKAGES.get(module, module.replace("_", "-"))
    lock = SOURCES / "peers" / module / "Cargo.lock"
    if lock.is_file():
        found = re.search(rf'name = "{package}"\nversion = "(.*)"', lock.read_text())
        return found and found[1]
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def build_all(*, quick: bool) -> tuple[list[str], str]:
    """Builds everything; returns the libraries, the floor first, and records about the peers."""
    if os.name != "posix" or not Path("/proc").is_dir():
        raise Unmeasured("the modules are built and counted on Linux only")
    for module in ("meter", FLOOR, OURS):
        build(module)
    built, records = [FLOOR, OURS], ""
    for peer in [] if quick else PEERS:
        name = peer.replace("_", "-")
        try:
            build(peer)
            built.append(peer)
        except Unmeasured as reason:
            records += f"note\t{name}: not built: {reason}\n"
        if found := version(peer):
            records += f"version\t{name}\t{found}\n"
    return built, records
