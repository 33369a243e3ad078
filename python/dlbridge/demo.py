"""Imports arrays of the installed frameworks into Rust and exports them again, without copying.

`python -m dlbridge.demo` compares every address and every value. The exit code is 0 if all are as
expected, and 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dlbridge

Array = Any

VALUES = [float(number) for number in range(4096)]
NEW_VALUE = -1.0
"""The value that is written through the tensor."""
HEADINGS = ["array", "protocol", "imported", "exported", "write visible", "read-only kept"]


@dataclass(frozen=True)
class Framework:
    """The functions of one framework."""

    name: str
    """The name of the array type."""
    make: Callable[[list[float]], Array]
    """Creates a float32 array."""
    back: Callable[[Any], Array]
    """The framework's own `from_dlpack`."""
    pointer: Callable[[Array], int]
    """The address of an array's first element."""
    values: Callable[[Array], list[float]]
    freeze: Callable[[Array], Array] | None = None
    """Creates a read-only array over the same memory, if the framework has them."""
    immutable: bool = False
    """Whether the framework's arrays are immutable."""


def numpy() -> Framework:
    import numpy as np

    def freeze(array: Array) -> Array:
        view = array.view()
        view.flags.writeable = False
        return view

    return Framework(
        name="numpy.ndarray",
        make=lambda values: np.array(values, np.float32),
        back=np.from_dlpack,
        pointer=lambda array: int(array.__array_interface__["data"][0]),
        values=lambda array: list(array.tolist()),
        freeze=freeze,
    )


def torch() -> Framework:
    import torch
    import torch.utils.dlpack

    return Framework(
        name="torch.Tensor",
        make=lambda values: torch.tensor(values, dtype=torch.float32),
        back=torch.utils.dlpack.from_dlpack,
        pointer=lambda array: int(array.data_ptr()),
        values=lambda array: list(array.tolist()),
    )


def jax() -> Framework:
    import jax
    import jax.numpy as jnp

    cpu = jax.devices("cpu")[0]
    return Framework(
        name="jax.Array",
        make=lambda values: jax.device_put(jnp.array(values, jnp.float32), cpu),
        back=jnp.from_dlpack,
        pointer=lambda array: int(array.unsafe_buffer_pointer()),
        values=lambda array: list(array.tolist()),
        immutable=True,
    )


def tvm_ffi() -> Framework:
    import tvm_ffi

    # tvm_ffi allocates no memory: its tensors are views of other libraries' memory.
    host = numpy()
    return Framework(
        name="tvm_ffi.Tensor",
        make=lambda values: tvm_ffi.from_dlpack(host.make(values)),
        back=tvm_ffi.from_dlpack,
        pointer=lambda array: host.pointer(host.back(array)),
        values=lambda array: host.values(host.back(array)),
    )


def tensorflow() -> Framework:
    import tensorflow as tf

    host = numpy()
    return Framework(
        name="tf.Tensor",
        make=lambda values: tf.constant(values, tf.float32),
        back=lambda tensor: tf.experimental.dlpack.from_dlpack(tensor.__dlpack__()),
        # Not array.numpy(), which copies.
        pointer=lambda array: host.pointer(host.back(array)),
        values=lambda array: list(array.numpy().tolist()),
        immutable=True,
    )


def paddle() -> Framework:
    import paddle

    return Framework(
        name="paddle.Tensor",
        make=lambda values: paddle.to_tensor(values, dtype="float32"),
        back=paddle.from_dlpack,
        pointer=lambda array: int(array.data_ptr()),
        values=lambda array: list(array.tolist()),
    )


FRAMEWORKS: dict[str, Callable[[], Framework]] = {
    "numpy": numpy,
    "torch": torch,
    "jax": jax,
    "tvm_ffi": tvm_ffi,
    "paddle": paddle,
    "tensorflow": tensorflow,
}
"""The frameworks by the module that they need.

Paddle comes before TensorFlow: Paddle 3.3 crashes if it is imported after TensorFlow.
"""


def check(framework: Framework) -> tuple[list[str], list[str]]:
    """The row of one framework, and the checks that failed."""
    wrong = []

    def fact(holds: bool, yes: str, otherwise: str) -> str:
        if not holds:
            wrong.append(f"{framework.name}: {otherwise}")
        return yes if holds else "NO"

    array = framework.make(VALUES)
    description = dlbridge.inspect(array)
    version = "" if description.version is None else " {}.{}".format(*description.version)
    tensor = dlbridge.from_dlpack(array)
    back = framework.back(tensor)
    same = tensor.data_ptr == framework.pointer(array) and tensor.tolist() == VALUES
    exported = framework.pointer(back) == framework.pointer(array)
    exported = exported and framework.values(back) == VALUES
    row = [
        framework.name,
        description.protocol + version,
        fact(same, "same memory", "expected the array's memory and values in Rust"),
        fact(exported, "same memory", "expected the same memory and values in the exported array"),
    ]
    if framework.immutable:
        row.append("immutable")
    else:
        _write(tensor)
        seen = framework.values(array) == [NEW_VALUE, *VALUES[1:]]
        row.append(fact(seen, "yes", "expected the write to show in the array"))
    return [*row, _read_only(framework, fact)], wrong


def _write(tensor: dlbridge.Tensor) -> None:
    memory: Any = memoryview(tensor)
    memory[0] = NEW_VALUE


def _read_only(framework: Framework, fact: Callable[[bool, str, str], str]) -> str:
    if framework.freeze is None and not framework.immutable:
        return "has none"
    array = framework.make(VALUES)
    tensor = dlbridge.from_dlpack(framework.freeze(array) if framework.freeze else array)
    if not tensor.readonly and framework.immutable:
        return "not said"  # The legacy ABI has no read-only flag.
    with contextlib.suppress(TypeError):
        _write(tensor)
    kept = framework.values(array) == VALUES
    return fact(kept, "yes", "expected read-only memory to be unchanged, found a write")


def found() -> tuple[list[Framework], list[str]]:
    """The installed frameworks, and the names of the modules that are not installed."""
    installed = [name for name in FRAMEWORKS if importlib.util.find_spec(name) is not None]
    missing = [name for name in FRAMEWORKS if name not in installed]
    return [FRAMEWORKS[name]() for name in installed], missing


def report(results: Sequence[tuple[list[str], list[str]]]) -> int:
    """Print the rows and return the exit code."""
    cells = [HEADINGS, *(row for row, _ in results)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in [HEADINGS, ["-" * width for width in widths], *cells[1:]]:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    wrong = [reason for _, reasons in results for reason in reasons]
    if wrong:
        print("\nWRONG:", *wrong, sep="\n  ")
        return 1
    print("\nEvery array kept its memory and its values: nothing was copied.")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    argparse.ArgumentParser(prog="python -m dlbridge.demo", description=__doc__).parse_args(
        arguments
    )
    shown, missing = found()
    print(f"dlbridge {dlbridge.__version__}, Python {platform.python_version()}\n")
    exit_code = report([check(framework) for framework in shown])
    if missing:
        print(f"not installed: {', '.join(missing)}")
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
