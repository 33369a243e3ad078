"""The kinds of arrays that the demo shows, each as its own framework sees it.

What is shown of them does not belong here (see `check`).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Array = Any


@dataclass(frozen=True)
class Kind:
    """One framework's arrays."""

    name: str
    """The array type, as its users know it."""
    make: Callable[[int], Array]
    """A float32 array of ones."""
    back: Callable[[Any], Array]
    """The framework's own `from_dlpack`."""
    pointer: Callable[[Array], int]
    """The address of an array's first element."""
    first: Callable[[Array], float]
    """An array's first element."""
    copy: Callable[[Array], Array]
    """The framework's own copy, to compare with."""
    freeze: Callable[[Array], Array] | None = None
    """A read-only array over the same memory, where there is such a thing."""
    immutable: bool = False
    """Whether the framework's arrays never change."""


def numpy() -> Kind:
    import numpy as np

    def freeze(array: Array) -> Array:
        view = array.view()
        view.flags.writeable = False
        return view

    return Kind(
        name="numpy.ndarray",
        make=lambda n: np.ones(n, np.float32),
        back=np.from_dlpack,
        pointer=lambda array: int(array.__array_interface__["data"][0]),
        first=lambda array: float(array[0]),
        copy=lambda array: array.copy(),
        freeze=freeze,
    )


def torch() -> Kind:
    import torch
    import torch.utils.dlpack

    return Kind(
        name="torch.Tensor",
        make=lambda n: torch.ones(n, dtype=torch.float32),
        back=torch.utils.dlpack.from_dlpack,
        pointer=lambda array: int(array.data_ptr()),
        first=lambda array: float(array[0]),
        copy=lambda array: array.clone(),
    )


def jax() -> Kind:
    import jax
    import jax.numpy as jnp

    cpu = jax.devices("cpu")[0]
    return Kind(
        name="jax.Array",
        make=lambda n: jax.device_put(jnp.ones(n, jnp.float32), cpu),
        back=jnp.from_dlpack,
        pointer=lambda array: int(array.unsafe_buffer_pointer()),
        first=lambda array: float(array[0]),
        copy=lambda array: jnp.array(array, copy=True).block_until_ready(),
        immutable=True,
    )


def tvm_ffi() -> Kind:
    import tvm_ffi

    import dlbridge

    # tvm_ffi makes no memory of its own: its tensors are views of somebody's.
    def make(n: int) -> Array:
        tensor = dlbridge.zeros(n, dtype="float32")
        dlbridge.fill(tensor, 1)
        return tvm_ffi.from_dlpack(tensor)

    host = numpy()
    return Kind(
        name="tvm_ffi.Tensor",
        make=make,
        back=tvm_ffi.from_dlpack,
        pointer=lambda array: host.pointer(host.back(array)),
        first=lambda array: host.first(host.back(array)),
        copy=lambda array: tvm_ffi.from_dlpack(host.copy(host.back(array))),
    )


def tensorflow() -> Kind:
    import tensorflow as tf

    def back(tensor: Any) -> Array:
        return tf.experimental.dlpack.from_dlpack(tensor.__dlpack__())

    host = numpy()
    return Kind(
        name="tf.Tensor",
        make=lambda n: tf.ones(n, tf.float32),
        back=back,
        # Not array.numpy(), which copies: an address of nothing that lasts.
        pointer=lambda array: host.pointer(host.back(array)),
        first=lambda array: float(array[0]),
        # Not tf.identity, which shares.
        copy=lambda array: tf.raw_ops.DeepCopy(x=array),
        immutable=True,
    )


def paddle() -> Kind:
    import paddle

    return Kind(
        name="paddle.Tensor",
        make=lambda n: paddle.ones([n], dtype="float32"),
        back=paddle.from_dlpack,
        pointer=lambda array: int(array.data_ptr()),
        first=lambda array: float(array[0]),
        copy=lambda array: array.clone(),
    )


KINDS: dict[str, Callable[[], Kind]] = {
    "numpy": numpy,
    "torch": torch,
    "jax": jax,
    "tvm_ffi": tvm_ffi,
    "paddle": paddle,
    "tensorflow": tensorflow,
}
"""How to make each kind, by the module that it needs.

Paddle stands before TensorFlow: imported after it, Paddle 3.3 crashes.
"""


def found() -> tuple[list[Kind], list[str]]:
    """The kinds that can be shown here, and the names of the modules that are not installed."""
    installed = [name for name in KINDS if importlib.util.find_spec(name) is not None]
    missing = [name for name in KINDS if name not in installed]
    return [KINDS[name]() for name in installed], missing
