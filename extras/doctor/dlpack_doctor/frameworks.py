"""The frameworks that the doctor knows by name.

Each is a few expressions. The checks evaluate them, and the reproducers print them.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from dlpack_doctor import abi, elements
from dlpack_doctor.source import Managed, producer_of
from dlpack_doctor.subject import VIEWS, Array, Odd, Shape, Subject


def _without(*names: str) -> dict[str, str]:
    return {name: view for name, view in VIEWS.items() if name not in names}


@dataclass(frozen=True)
class Framework:
    """Expressions over `x`, an array, and `p`, a producer; fields are those of `Subject`."""

    package: str
    """Its name for pip."""
    module: str
    setup: str
    row: str = "np.arange({count}).reshape({shape})"
    """0, 1, 2, ... of the framework's choice of type, with {count} and {shape}; empty where it
    exports nothing."""
    cast: str = "{row}.astype('{dtype}')"
    """The same as {dtype}."""
    take: str = ""
    wrap: str = "{}"
    """Wraps the array that `row` and `cast` make."""
    empty: str = ""
    """An array without elements, where `cast` makes none."""
    lacks: tuple[str, ...] = ()
    """Element types whose names mean another type in this framework."""
    shape: Shape = (2, 3)
    immutable: bool = False
    freeze: str = ""
    views: Mapping[str, str] = field(default_factory=dict)
    odd: tuple[tuple[Any, ...], ...] = ()
    """A label, an expression, and the elements where DLPack can describe them."""
    look: str = ""
    address: str = ""
    frozen: str = ""

    def code(self, shape: Shape, dtype: str) -> str:
        """The expression that makes an array."""
        if dtype in self.lacks:
            raise TypeError(f"no element type {dtype}")
        if 0 in shape and self.empty:
            return self.empty.format(shape=shape, dtype=dtype)
        row = self.row.format(count=prod(shape), shape=shape)
        made = f"{row} % 2 == 1" if dtype == "bool" else self.cast.format(row=row, dtype=dtype)
        return self.wrap.format(made)

    def subject(self, name: str) -> Subject:
        """Import the framework."""
        space: dict[str, Any] = {}
        exec(self.setup, space)

        def of(expression: str, argument: str = "x") -> Callable[[Any], Any] | None:
            code = f"lambda {argument}: {expression}"
            return eval(code, space) if expression else None

        def odd() -> list[Odd]:
            rows = [(label, code, *(more or (None,))) for label, code, *more in self.odd]
            return [
                Odd(label, functools.partial(eval, code, space), numbers, code)
                for label, code, numbers in rows
            ]

        return Subject(
            name,
            version=importlib.metadata.version(self.package) if self.package else "",
            make=(lambda shape, dtype: eval(self.code(shape, dtype), space)) if self.row else None,
            take=of(self.take.replace("(p)", "(p, **k)"), "p, **k"),
            shape=self.shape,
            immutable=self.immutable,
            freeze=of(self.freeze),
            views={name: made for name, view in self.views.items() if (made := of(view))},
            odd=odd,
            look=of(self.look),
            address=of(self.address),
            frozen=of(self.frozen),
            setup=self.setup,
            code=self.code,
            view_code=self.views,
            take_code=self.take.replace("(p", "({}") if self.take else "",
        )


NUMPY = Framework(
    "numpy",
    "numpy",
    "import numpy as np",
    take="np.from_dlpack(p)",
    freeze="(y := x.view(), setattr(y.flags, 'writeable', False))[0]",
    views={**VIEWS, "broadcast": "np.broadcast_to(x[0], (2, 3))"},
    odd=(
        ("big-endian numbers", "np.arange(3, dtype='>f4')", [0.0, 1.0, 2.0]),
        ("strings", "np.array(['a'])"),
        ("dates", "np.array(['2026-01-01'], 'datetime64[D]')"),
        (
            "strides of 5 bytes",
            "np.rec.fromarrays([[0, 0, 0], [0, 1, 2]], dtype=[('a', 'u1'), ('b', '<f4')])['b']",
            [0.0, 1.0, 2.0],
        ),
    ),
    look="x.tolist() if x.ndim else [x.item()]",
    address="int(x.__array_interface__['data'][0])",
    frozen="not x.flags.writeable",
)


def namespace(package: str, module: str, name: str, **fields: Any) -> Framework:
    """A framework that is known by the functions of the array API."""
    expressions = {
        "row": f"{name}.reshape({name}.arange({{count}}), {{shape}})",
        "cast": f"{name}.astype({{row}}, {name}.{{dtype}})",
        "take": f"{name}.from_dlpack(p)",
    }
    setup = f"import {module} as {name}" if name != module else f"import {module}"
    return Framework(package, module, setup, **expressions | fields)


# Paddle stands before TensorFlow: imported after it, Paddle 3.3 crashes.
FRAMEWORKS: dict[str, Framework] = {
    "numpy": NUMPY,
    "array_api_strict": namespace(
        "array-api-strict",
        "array_api_strict",
        "xp",
        views={**VIEWS, "broadcast": "xp.broadcast_to(x[0, ...], (2, 3))", "offset": "x[1, ...]"},
    ),
    "torch": Framework(
        "torch",
        "torch",
        "import torch, torch.utils.dlpack",
        row="torch.arange({count}).reshape({shape})",
        cast="{row}.to(torch.{dtype})",
        take="torch.from_dlpack(p)",
        freeze="torch.utils.dlpack.ReadOnlyTensorWrapper(x)",
        views={**_without("reversed", "flipped"), "broadcast": "x[:1].expand(2, 3)"},
        odd=(
            ("a tensor that needs a gradient", "torch.ones(3, requires_grad=True)"),
            ("a lazily conjugated view", "torch.tensor([1 + 2j]).conj()", [1 - 2j]),
            ("a lazily negated view", "torch.tensor([1 + 2j]).conj().imag", [-2.0]),
            ("a sparse tensor", "torch.eye(2).to_sparse()"),
            ("a meta tensor", "torch.ones(2, device='meta')"),
        ),
        look="x.tolist()",
        address="int(x.data_ptr())",
        frozen="False",
    ),
    "jax": Framework(
        "jax",
        "jax",
        "import jax, jax.numpy as jnp; jax.config.update('jax_enable_x64', True); "
        "jax.config.update('jax_default_device', jax.devices('cpu')[0])",
        row="jnp.arange({count}).reshape({shape})",
        take="jnp.from_dlpack(p)",
        immutable=True,
        look="x.tolist()",
        address="int(x.unsafe_buffer_pointer())",
    ),
    "pyarrow.Array": Framework(
        "pyarrow",
        "pyarrow",
        "import numpy as np, pyarrow as pa",
        wrap="pa.array({})",
        take="pa.Array.from_dlpack(p)",
        shape=(6,),
        immutable=True,
        odd=(
            ("an array with a null", "pa.array([1, None])"),
            ("strings", "pa.array(['a'])"),
            ("bit-packed bools", "pa.array([True, False])", [True, False]),
        ),
        look="x.to_pylist()",
        address="int(x.buffers()[1].address) + x.offset * x.type.bit_width // 8",
    ),
    "pyarrow.Tensor": Framework(
        "pyarrow",
        "pyarrow",
        "import numpy as np, pyarrow as pa",
        wrap="pa.Tensor.from_numpy({})",
        take="pa.Tensor.from_dlpack(p)",
        freeze="pa.Tensor.from_numpy(np.frombuffer(x.to_numpy().tobytes(), "
        "x.to_numpy().dtype).reshape(x.shape))",
        views={
            name: f"pa.Tensor.from_numpy({view.replace('x', 'x.to_numpy()', 1)})"
            for name, view in VIEWS.items()
        }
        | {"broadcast": "pa.Tensor.from_numpy(np.broadcast_to(x.to_numpy()[0], (2, 3)))"},
        odd=tuple(
            (label, f"pa.Tensor.from_numpy({code})", *more)
            for label, code, *more in NUMPY.odd
            if more
        ),
        look="x.to_numpy().tolist()",
        address="int(x.to_numpy().__array_interface__['data'][0])",
        frozen="not x.is_mutable",
    ),
    "tvm_ffi": Framework(
        "apache-tvm-ffi",
        "tvm_ffi",
        "import numpy as np, tvm_ffi",
        # It makes no memory of its own: its tensors are views of another framework's.
        wrap="tvm_ffi.from_dlpack({})",
        take="tvm_ffi.from_dlpack(p)",
    ),
    "paddle": Framework(
        "paddlepaddle",
        "paddle",
        "import paddle",
        row="paddle.arange({count}).reshape({shape})",
        empty="paddle.zeros({shape}, dtype='{dtype}')",
        # Its old name for bfloat16.
        lacks=("uint16",),
        take="paddle.from_dlpack(p)",
        views={"broadcast": "paddle.as_strided(x, [2, 3], [0, 1])"},
        odd=(
            (
                "a tensor that needs a gradient",
                "(y := paddle.ones([3]), setattr(y, 'stop_gradient', False))[0]",
            ),
        ),
        # NumPy has no bfloat16, and gets its bits as integers.
        look="[(x.astype('float32') if x.dtype == paddle.bfloat16 else x).numpy().tolist()]",
        address="int(x.data_ptr())",
        frozen="False",
    ),
    "mlx": Framework(
        "mlx",
        "mlx.core",
        "import mlx.core as mx",
        row="mx.arange({count}).reshape({shape})",
        cast="{row}.astype(mx.{dtype})",
        take="getattr(mx, 'from_dlpack', mx.array)(p)",
        views={**VIEWS, "broadcast": "mx.broadcast_to(x[0], (2, 3))"},
        look="x.tolist()",
    ),
    "warp": Framework(
        "warp-lang",
        "warp",
        "import numpy as np, warp as wp; wp.config.quiet = True; wp.init()",
        wrap="wp.array({}, device='cpu')",
        take="wp.from_dlpack(p)",
        views={"offset": "x[1]", "every second": "x[:, ::2]", "transposed": "x.transpose()"},
        look="x.numpy().tolist()",
        address="int(x.ptr)",
        frozen="False",
    ),
    "tensorflow": Framework(
        "tensorflow-cpu",
        "tensorflow",
        "import tensorflow as tf; tf.config.set_visible_devices([], 'GPU')",
        row="tf.reshape(tf.range({count}), {shape})",
        cast="tf.cast({row}, '{dtype}')",
        take="tf.experimental.dlpack.from_dlpack(p)",
        immutable=True,
        odd=(("strings", "tf.constant(['a'])"),),
        look="x.numpy().tolist()",
    ),
    "max": Framework(
        "max",
        "max.driver",
        "import numpy as np; from max.driver import Buffer",
        wrap="Buffer.from_numpy({})",
        take="Buffer.from_dlpack(p)",
        look="x.to_numpy().tolist()",
    ),
    "ragged": Framework(
        "ragged",
        "ragged",
        "import numpy as np, ragged",
        wrap="ragged.array({})",
        take="ragged.from_dlpack(p)",
        views={"offset": "x[1]", "transposed": "x.T"},
        look="x.tolist()",
    ),
    "scirs2": Framework(
        "scirs2",
        "scirs2",
        "import scirs2",
        row="",
        take="scirs2.from_dlpack(p)",
        look=NUMPY.look,
        address=NUMPY.address,
    ),
    "cupy": namespace(
        "cupy",
        "cupy",
        "cupy",
        look="x.tolist()",
        address="int(x.data.ptr)",
        views={**VIEWS, "broadcast": "cupy.broadcast_to(x[0], (2, 3))"},
    ),
}


def installed() -> list[str]:
    """The frameworks of the table that can be imported here."""
    return [name for name, known in FRAMEWORKS.items() if is_there(known.module)] + (
        ["dlbridge"] if is_there("dlbridge") else []
    )


def is_there(module: str) -> bool:
    """Whether a module can be imported; only its packages are."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def dlbridge() -> Subject:
    """It has no views of its own, so its strided tensors come from another producer."""
    dlbridge: Any = importlib.import_module("dlbridge")

    def make(shape: Shape, dtype: str) -> Array:
        import ctypes

        tensor = dlbridge.zeros(shape, dtype=dtype)
        data = elements.packed(dtype, tensor.size)
        ctypes.memmove(tensor.data_ptr, data, len(data))
        return tensor

    def strided(shape: Shape, strides: Shape, offset: int = 0) -> Callable[[Array], Array]:
        made = functools.partial(Managed, shape, strides=strides, offset=offset)
        return lambda _array: dlbridge.from_dlpack(producer_of(made()))

    return Subject(
        "dlbridge",
        version=dlbridge.__version__,
        make=make,
        take=dlbridge.from_dlpack,
        freeze=lambda x: dlbridge.from_dlpack(
            producer_of(Managed(x.shape, dtype=x.dtype, flags=abi.READ_ONLY))
        ),
        views={
            "offset": strided((3,), (1,), 3),
            "corner": strided((1, 2), (3, 1), 4),
            "every second": strided((2, 2), (3, 2)),
            "transposed": strided((3, 2), (1, 3)),
            "reversed": strided((2, 3), (3, -1), 2),
            "flipped": strided((3, 2), (-1, 3), 2),
            "broadcast": strided((2, 3), (0, 1)),
        },
        address=lambda a: int(a.data_ptr),
        frozen=lambda a: bool(a.readonly),
        setup="import dlbridge",
        code=lambda shape, dtype: f"dlbridge.zeros({shape}, dtype={dtype!r})",
        take_code="dlbridge.from_dlpack({})",
    )
