"""The exported descriptor of an object, as a printable value."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dlbridge import _native


@dataclass(frozen=True)
class Description:
    """A producer's descriptor, before normalisation."""

    protocol: str
    """How the tensor was imported: a DLPack method, a bare capsule, or another protocol."""
    version: tuple[int, int] | None
    """The version in a versioned descriptor; None for a legacy one and for other protocols."""
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
    """The strides in elements; contiguous ones if the descriptor has none."""
    explicit_strides: bool
    """Whether the descriptor has strides, not a null pointer."""
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
                return "not DLPack" if self.protocol in _OTHERS else "legacy"
            case "version", (major, minor):
                return f"{major}.{minor}"
        return str(value)


_OTHERS = {
    "NumPy C API",
    "__cuda_array_interface__",
    "buffer protocol",
    "__array_interface__",
    "__arrow_c_array__",
    "__arrow_c_stream__",
}


def inspect(x: object, /) -> Description:
    """Describe the tensor that an object exports, through DLPack or another protocol.

    The object is imported as by `from_dlpack`, and the tensor is released at once.

    >>> import dlbridge
    >>> dlbridge.inspect(dlbridge.zeros((2, 3))).dtype
    'float64'
    """
    return Description(**_native.inspect(x))
