"""The frameworks that the doctor knows by name: how each makes an array, views, and takes one.

What is asked of them does not belong here. Nothing is imported before its row is built.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from dlbridge.doctor import abi, elements
from dlbridge.doctor.source import Managed, producer_of
from dlbridge.doctor.subject import Array, Odd, Shape, Subject, of_namespace

VIEWS: dict[str, Callable[[Array], Array]] = {
    "offset": lambda a: a[1],
    "every second": lambda a: a[:, ::2],
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[:, ::-1],
}
"""Views as most frameworks write them."""


def _without(*names: str) -> dict[str, Callable[[Array], Array]]:
    return {name: view for name, view in VIEWS.items() if name not in names}


def _count(shape: Shape) -> int:
    return functools.reduce(lambda total, extent: total * extent, shape, 1)


def numpy() -> Subject:
    np: Any = importlib.import_module("numpy")
    as_strided = np.lib.stride_tricks.as_strided

    def freeze(array: Array) -> Array:
        view = array.view()
        view.flags.writeable = False
        return view

    def odd() -> Iterator[Odd]:
        numbers = [0.0, 1.0, 2.0]
        yield Odd("big-endian numbers", lambda: np.arange(3, dtype=">f4"), numbers)
        yield Odd("strings", lambda: np.array(["a"]))
        yield Odd("dates", lambda: np.array(["2026-01-01"], "datetime64[D]"))
        packed = np.zeros(3, dtype=[("tag", "u1"), ("number", "<f4")])
        packed["number"] = numbers
        yield Odd("strides of 5 bytes", lambda: packed["number"], numbers)

    return Subject(
        "numpy",
        make=lambda shape, dtype: (
            np.arange(_count(shape)).reshape(shape).astype(dtype)
            if dtype != "bool"
            else (np.arange(_count(shape)) % 2 == 1).reshape(shape)
        ),
        take=np.from_dlpack,
        take_copy=lambda x: np.from_dlpack(x, copy=True),
        freeze=freeze,
        views={**VIEWS, "broadcast": lambda a: as_strided(a, (2, 3), (0, a.strides[1]))},
        odd=odd,
        look=lambda a: a.tolist() if a.ndim else [a.item()],
        address=lambda a: int(a.__array_interface__["data"][0]),
        frozen=lambda a: not a.flags.writeable,
    )


def torch() -> Subject:
    torch: Any = importlib.import_module("torch")
    importlib.import_module("torch.utils.dlpack")

    def make(shape: Shape, dtype: str) -> Array:
        row = torch.arange(_count(shape)).reshape(shape)
        return (row % 2 == 1) if dtype == "bool" else row.to(getattr(torch, dtype))

    def freeze(array: Array) -> Array:
        return torch.utils.dlpack.ReadOnlyTensorWrapper(array)

    def odd() -> Iterator[Odd]:
        yield Odd("a tensor that needs a gradient", lambda: torch.ones(3, requires_grad=True))
        yield Odd("a lazily conjugated view", lambda: torch.tensor([1 + 2j]).conj(), [1 - 2j])
        yield Odd("a lazily negated view", lambda: torch.tensor([1 + 2j]).conj().imag, [-2.0])
        yield Odd("a sparse tensor", lambda: torch.eye(2).to_sparse())
        yield Odd("a meta tensor", lambda: torch.ones(2, device="meta"))

    return Subject(
        "torch",
        make=make,
        take=torch.from_dlpack,
        take_copy=lambda x: torch.from_dlpack(x, copy=True),
        freeze=freeze,
        views={**_without("reversed"), "broadcast": lambda a: a[:1].expand(2, 3)},
        odd=odd,
        look=lambda a: a.tolist(),
        address=lambda a: int(a.data_ptr()),
        frozen=lambda _a: False,
    )


def jax() -> Subject:
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")

    jax.config.update("jax_enable_x64", True)
    cpu = jax.devices("cpu")[0]

    def make(shape: Shape, dtype: str) -> Array:
        row = jnp.arange(_count(shape)).reshape(shape)
        array = (row % 2 == 1) if dtype == "bool" else row.astype(dtype)
        return jax.device_put(array, cpu).block_until_ready()

    return Subject(
        "jax",
        make=make,
        take=jnp.from_dlpack,
        take_copy=lambda x: jnp.from_dlpack(x, copy=True),
        immutable=True,
        look=lambda a: a.tolist(),
        address=lambda a: int(a.unsafe_buffer_pointer()),
    )


def paddle() -> Subject:
    paddle: Any = importlib.import_module("paddle")

    def make(shape: Shape, dtype: str) -> Array:
        if dtype == "uint16":
            raise TypeError("uint16 is its old name for bfloat16")
        if _count(shape) == 0:
            return paddle.zeros(shape, dtype=dtype)
        row = paddle.arange(_count(shape)).reshape(shape)
        return (row % 2 == 1) if dtype == "bool" else row.astype(dtype)

    def odd() -> Iterator[Odd]:
        def grad() -> Array:
            tensor = paddle.ones([3])
            tensor.stop_gradient = False
            return tensor

        yield Odd("a tensor that needs a gradient", grad)

    def look(array: Array) -> list[Any]:
        # NumPy has no bfloat16, and gets its bits as integers.
        plain = array.astype("float32") if array.dtype == paddle.bfloat16 else array
        return [plain.numpy().tolist()]

    return Subject(
        "paddle",
        make=make,
        take=paddle.from_dlpack,
        take_copy=lambda x: paddle.from_dlpack(x, copy=True),
        views={"broadcast": lambda a: paddle.as_strided(a, [2, 3], [0, 1])},
        odd=odd,
        look=look,
        address=lambda a: int(a.data_ptr()),
        frozen=lambda _a: False,
    )


def tensorflow() -> Subject:
    tf: Any = importlib.import_module("tensorflow")

    def make(shape: Shape, dtype: str) -> Array:
        with tf.device("CPU:0"):
            row = tf.reshape(tf.range(_count(shape)), shape)
            return tf.identity(row % 2 == 1 if dtype == "bool" else tf.cast(row, dtype))

    return Subject(
        "tensorflow",
        make=make,
        # It takes a capsule, and the old one only.
        take=lambda x: tf.experimental.dlpack.from_dlpack(x.__dlpack__()),
        immutable=True,
        odd=lambda: [Odd("strings", lambda: tf.constant(["a"]))],
        look=lambda a: a.numpy().tolist(),
    )


def mlx() -> Subject:
    mx: Any = importlib.import_module("mlx.core")

    def make(shape: Shape, dtype: str) -> Array:
        row = mx.arange(_count(shape)).reshape(shape)
        array = (row % 2 == 1) if dtype == "bool" else row.astype(getattr(mx, _mlx_name(dtype)))
        mx.eval(array)
        return array

    return Subject(
        "mlx",
        make=make,
        take=mx.from_dlpack if hasattr(mx, "from_dlpack") else mx.array,
        views={**VIEWS, "broadcast": lambda a: mx.broadcast_to(a[0], (2, 3))},
        look=lambda a: a.tolist(),
    )


def _mlx_name(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype


def tvm_ffi() -> Subject:
    tvm_ffi: Any = importlib.import_module("tvm_ffi")

    host = numpy()

    def make(shape: Shape, dtype: str) -> Array:
        # It makes no memory of its own: its tensors are views of somebody's.
        assert host.make is not None
        return tvm_ffi.from_dlpack(host.make(shape, dtype))

    return Subject("tvm_ffi", make=make, take=tvm_ffi.from_dlpack)


def pyarrow_array() -> Subject:
    np: Any = importlib.import_module("numpy")
    pa: Any = importlib.import_module("pyarrow")

    def make(shape: Shape, dtype: str) -> Array:
        if len(shape) != 1:
            raise TypeError("its arrays have one axis")
        kind = pa.from_numpy_dtype(np.dtype(dtype))
        if dtype == "bool":
            return pa.array(elements.sample(dtype, shape[0]), kind)
        data = pa.py_buffer(elements.packed(dtype, shape[0]))
        return pa.Array.from_buffers(kind, shape[0], [None, data])

    def odd() -> Iterator[Odd]:
        yield Odd("an array with a null", lambda: pa.array([1, None]))
        yield Odd("strings", lambda: pa.array(["a"]))
        yield Odd("bit-packed bools", lambda: pa.array([True, False]), [True, False])

    return Subject(
        "pyarrow.Array",
        make=make,
        take=pa.Array.from_dlpack if hasattr(pa.Array, "from_dlpack") else None,
        take_copy=None,
        shape=(6,),
        immutable=True,
        odd=odd,
        look=lambda a: a.to_pylist(),
        address=lambda a: int(a.buffers()[1].address) + a.offset * a.type.bit_width // 8,
    )


def pyarrow_tensor() -> Subject:
    pa: Any = importlib.import_module("pyarrow")

    host = numpy()
    assert host.make is not None
    make = host.make

    def wrapped(array: Callable[[], Array]) -> Array:
        return pa.Tensor.from_numpy(array())

    def viewed(view: Callable[[Array], Array], tensor: Array) -> Array:
        return pa.Tensor.from_numpy(view(tensor.to_numpy()))

    def odd() -> Iterator[Odd]:
        for one in host.odd():
            if one.numbers is not None:
                yield Odd(one.label, functools.partial(wrapped, one.make), one.numbers)

    return Subject(
        "pyarrow.Tensor",
        make=lambda shape, dtype: pa.Tensor.from_numpy(make(shape, dtype)),
        take=pa.Tensor.from_dlpack if hasattr(pa.Tensor, "from_dlpack") else None,
        freeze=lambda a: pa.Tensor.from_numpy(host.freeze(a.to_numpy())) if host.freeze else a,
        views={name: functools.partial(viewed, view) for name, view in host.views.items()},
        odd=odd,
        look=lambda a: a.to_numpy().tolist(),
        address=lambda a: int(a.to_numpy().__array_interface__["data"][0]),
        frozen=lambda a: not a.is_mutable,
    )


def array_api_strict() -> Subject:
    xp: Any = importlib.import_module("array_api_strict")

    subject = of_namespace(xp, "array_api_strict")
    subject.views = {
        **VIEWS,
        "broadcast": lambda a: xp.broadcast_to(a[0, ...], (2, 3)),
        "offset": lambda a: a[1, ...],
    }
    return subject


def cupy() -> Subject:
    cupy: Any = importlib.import_module("cupy")

    subject = of_namespace(cupy, "cupy")
    subject.address = lambda a: int(a.data.ptr)
    subject.look = lambda a: a.tolist()
    subject.views = {**VIEWS, "broadcast": lambda a: cupy.broadcast_to(a[0], (2, 3))}
    return subject


def dlbridge() -> Subject:
    dlbridge: Any = importlib.import_module("dlbridge")

    def make(shape: Shape, dtype: str) -> Array:
        import ctypes

        # Its arrays of numbers have one axis, so these are zeros that get numbers.
        tensor = dlbridge.zeros(shape, dtype=dtype)
        data = elements.packed(dtype, tensor.size)
        ctypes.memmove(tensor.data_ptr, data, len(data))
        return tensor

    def freeze(array: Array) -> Array:
        # Its own memory may always be written; what it took from others may be read-only.
        frozen = Managed(array.shape, dtype=array.dtype, flags=abi.READ_ONLY)
        return dlbridge.from_dlpack(producer_of(frozen))

    def strided(shape: Shape, strides: Shape, offset: int = 0) -> Array:
        # It has no views of its own: what is strided came so from somebody else.
        return dlbridge.from_dlpack(producer_of(Managed(shape, strides=strides, offset=offset)))

    return Subject(
        "dlbridge",
        make=make,
        take=dlbridge.from_dlpack,
        take_copy=lambda x: dlbridge.from_dlpack(x, copy=True),
        freeze=freeze,
        views={
            "offset": lambda _a: strided((3,), (1,), 3),
            "every second": lambda _a: strided((2, 2), (3, 2)),
            "transposed": lambda _a: strided((3, 2), (1, 3)),
            "reversed": lambda _a: strided((2, 3), (3, -1), 2),
            "broadcast": lambda _a: strided((2, 3), (0, 1)),
        },
        address=lambda a: int(a.data_ptr),
        frozen=lambda a: bool(a.readonly),
    )
