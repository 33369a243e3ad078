"""Names for subjects: frameworks of the table, modules, factories and classes.

How a framework makes arrays belongs to `frameworks`. Only what is asked for is imported.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlbridge.doctor import frameworks
from dlbridge.doctor.subject import Subject, of_factory, of_namespace


@dataclass(frozen=True)
class Known:
    """A framework that can be built when its module is there."""

    module: str
    package: str
    """What pip knows it by."""
    build: Callable[[], Subject]


FRAMEWORKS: dict[str, Known] = {
    "dlbridge": Known("dlbridge", "dlbridge", frameworks.dlbridge),
    "numpy": Known("numpy", "numpy", frameworks.numpy),
    "array_api_strict": Known("array_api_strict", "array-api-strict", frameworks.array_api_strict),
    "torch": Known("torch", "torch", frameworks.torch),
    "jax": Known("jax", "jax", frameworks.jax),
    "pyarrow.Array": Known("pyarrow", "pyarrow", frameworks.pyarrow_array),
    "pyarrow.Tensor": Known("pyarrow", "pyarrow", frameworks.pyarrow_tensor),
    "tvm_ffi": Known("tvm_ffi", "apache-tvm-ffi", frameworks.tvm_ffi),
    "paddle": Known("paddle", "paddlepaddle", frameworks.paddle),
    "mlx": Known("mlx.core", "mlx", frameworks.mlx),
    "tensorflow": Known("tensorflow", "tensorflow", frameworks.tensorflow),
    "cupy": Known("cupy", "cupy", frameworks.cupy),
}
"""By name. Paddle stands before TensorFlow: imported after it, Paddle 3.3 crashes."""


def expand(name: str) -> list[str]:
    """A name as the table has it: `pyarrow` stands for both of its kinds."""
    found = [known for known in FRAMEWORKS if known.split(".")[0] == name]
    return found or [name]


def installed() -> list[str]:
    """The frameworks of the table that can be imported here."""
    return [name for name, known in FRAMEWORKS.items() if _is_there(known.module)]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


class Unknown(Exception):
    """A name that stands for nothing."""


def resolve(name: str) -> Subject:
    """A framework of the table, `module:factory`, `module:Class`, or an array API namespace."""
    if name in FRAMEWORKS:
        known = FRAMEWORKS[name]
        subject = known.build()
        subject.version = _version(known)
        return subject
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise Unknown(f"{name}: {error}") from error
    if not attribute:
        space = of_namespace(module, name)
        if space.make is None and space.take is None:
            raise Unknown(f"{name} has neither arange nor from_dlpack; name a module:factory")
        return space
    thing: Any = module
    for part in attribute.split("."):
        thing = getattr(thing, part, None)
    if not callable(thing):
        raise Unknown(f"{module_name} has no callable {attribute}")
    if attribute.endswith("from_dlpack"):
        return Subject(name, take=thing)
    take = getattr(thing, "from_dlpack", None) or getattr(module, "from_dlpack", None)
    subject = of_factory(thing, name, take)
    subject.version = str(getattr(module, "__version__", ""))
    return subject


def _version(known: Known) -> str:
    try:
        return importlib.metadata.version(known.package)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get(known.module), "__version__", ""))
