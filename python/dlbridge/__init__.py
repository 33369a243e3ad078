"""Share tensor memory without copies, over DLPack.

>>> import dlbridge
>>> tensor = dlbridge.arange(6, dtype="float32")
>>> tensor
dlbridge.Tensor(shape=(6,), dtype=float32, device=cpu)

`from_dlpack` takes any framework's array over the same memory, and whatever has a buffer. A
`Tensor` goes back with the framework's own `from_dlpack`, or as a `memoryview`. `inspect` tells
what an object hands over, and how.
"""

from dlbridge._inspect import Description, inspect
from dlbridge._native import (
    DLPACK_VERSION,
    Tensor,
    __version__,
    arange,
    fill,
    from_bytes,
    from_dlpack,
    zeros,
)

__all__ = [
    "DLPACK_VERSION",
    "Description",
    "Tensor",
    "__version__",
    "arange",
    "fill",
    "from_bytes",
    "from_dlpack",
    "inspect",
    "zeros",
]
