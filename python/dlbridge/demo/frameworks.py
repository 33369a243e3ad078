"""How to create and inspect arrays in each framework of the demo; `check` uses these functions."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Array = Any


@dataclass(frozen=True)
class Framework:
    """The functions of one framework."""

    name: str
    """The name of the array type."""
    make: Callable[[int], Array]
    """Creates a float32 array of ones."""
    back: Callable[[Any], Array]
    """The framework's own `from_dlpack`."""
    pointer: Callable[[Array], int]
    """The address of an array's first element."""
    first: Callable[[Array], float]
    """An array's first element."""
    copy: Callable[[Array], Array]
    """The framework's own copy, for comparison."""
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
        make=lambda n: np.ones(n, np.float32),
        back=np.from_dlpack,
        pointer=lambda array: int(array.__array_interface__["data"][0]),
        first=lambda array: float(array[0]),
        copy=lambda array: array.copy(),
        freeze=freeze,
    )


def torch() -> Framework:
    import torch
    import torch.utils.dlpack

    return Framework(
        name="torch.Tensor",
        make=lambda n: torch.ones(n, dtype=torch.float32),
        back=torch.utils.dlpack.from_dlpack,
        pointer=lambda array: int(array.data_ptr()),
        first=lambda array: float(array[0]),
        copy=lambda array: array.clone(),
    )


def jax() -> Framework:
    import jax
    import jax.numpy as jnp

    cpu = jax.devices("cpu")[0]
    return Framework(
        name="jax.Array",
        make=lambda n: jax.device_put(jnp.ones(n, jnp.float32), cpu),
        back=jnp.from_dlpack,
        pointer=lambda array: int(array.unsafe_buffer_pointer()),
        first=lambda array: float(array[0]),
        copy=lambda array: jnp.array(array, copy=True).block_until_ready(),
        immutable=True,
    )


def tvm_ffi() -> Framework:
    import tvm_ffi

    import dlbridge

    # tvm_ffi allocates no memory: its tensors are views of other libraries' memory.
    def make(n: int) -> Array:
        tensor = dlbridge.zeros(n, dtype="float32")
        dlbridge.fill(tensor, 1)
        return tvm_ffi.from_dlpack(tensor)

    host = numpy()
    return Framework(
        name="tvm_ffi.Tensor",
        make=make,
        back=tvm_ffi.from_dlpack,
        pointer=lambda array: host.pointer(host.back(array)),
        first=lambda array: host.first(host.back(array)),
        copy=lambda array: tvm_ffi.from_dlpack(host.copy(host.back(array))),
    )


def tensorflow() -> Framework:
    import tensorflow as tf

    def back(tensor: Any) -> Array:
        return tf.experimental.dlpack.from_dlpack(tensor.__dlpack__())

    host = numpy()
    return Framework(
        name="tf.Tensor",
        make=lambda n: tf.ones(n, tf.float32),
        back=back,
        # Not array.numpy(), which copies.
        pointer=lambda array: host.pointer(host.back(array)),
        first=lambda array: float(array[0]),
        # Not tf.identity, which shares.
        copy=lambda array: tf.raw_ops.DeepCopy(x=array),
        immutable=True,
    )


def paddle() -> Framework:
    import paddle

    return Framework(
        name="paddle.Tensor",
        make=lambda n: paddle.ones([n], dtype="float32"),
        back=paddle.from_dlpack,
        pointer=lambda array: int(array.data_ptr()),
        first=lambda array: float(array[0]),
        copy=lambda array: array.clone(),
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


def found() -> tuple[list[Framework], list[str]]:
    """The installed frameworks, and the names of the modules that are not installed."""
    installed = [name for name in FRAMEWORKS if importlib.util.find_spec(name) is not None]
    missing = [name for name in FRAMEWORKS if name not in installed]
    return [FRAMEWORKS[name]() for name in installed], missing
