"""What an object hands over through DLPack, as a value that prints well."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dlbridge import _native


@dataclass(frozen=True)
class Description:
    """A producer's descriptor, as it stood before anything was evened out."""

    protocol: str
    """Which way it came: the method and its answer, a bare capsule, or what is not DLPack."""
    version: tuple[int, int] | None
    """The DLPack version that the descriptor states; None before 1.0, and without DLPack."""
    flags: str
    """The flag bits by name."""
    readonly: bool
    """Whether the memory must not be written."""
    copied: bool
    """Whether the producer made a copy."""
    dtype: str
    """The element type by name."""
    device: str
    """Where the memory is."""
    shape: tuple[int, ...]
    """The extents, outermost axis first."""
    strides: tuple[int, ...]
    """The steps along each axis, in elements; compact ones where none were given."""
    explicit_strides: bool
    """Whether the producer gave strides, rather than a null pointer."""
    byte_offset: int
    """The descriptor's byte offset, which `data_ptr` includes."""
    data_ptr: int
    """The address of the first element."""
    nbytes: int
    """The size of all elements in bytes."""

    def __str__(self) -> str:
        width = max(len(field.name) for field in fields(self))
        rows = ((field.name, getattr(self, field.name)) for field in fields(self))
        return "\n".join(f"{name:<{width}}  {self._show(name, value)}" for name, value in rows)

    def _show(self, name: str, value: object) -> str:
        match name, value:
            case "data_ptr", int():
                return hex(value)
            case "version", None:
                return "not DLPack" if self.protocol in _OTHERS else "before 1.0"
            case "version", (major, minor):
                return f"{major}.{minor}"
        return str(value)


_OTHERS = {
    "NumPy C API",
    "__cuda_array_interface__",
    "buffer protocol",
    "__array_interface__",
    "__arrow_c_array__",
}


def inspect(x: object, /) -> Description:
    """Describe what an object hands over, through DLPack or another protocol.

    The object is asked as `from_dlpack` asks it, and what it gives is released at once.

    >>> import dlbridge
    >>> dlbridge.inspect(dlbridge.zeros((2, 3))).dtype
    'float64'
    """
    return Description(**_native.inspect(x))
