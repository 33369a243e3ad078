"""Share tensor memory without copies, over DLPack.

>>> import dlbridge, numpy
>>> tensor = dlbridge.from_dlpack(numpy.arange(4, dtype="float32"))
>>> tensor
dlbridge.Tensor([0.0, 1.0, 2.0, 3.0], shape=(4,), dtype=float32, device=cpu)
>>> tensor[1:3].tolist()
[1.0, 2.0]

`from_dlpack` imports an array of any framework, or an object with the buffer protocol, without
copying. Every framework imports a `Tensor` with its own `from_dlpack`; `memoryview` accepts it as
well. `inspect` shows the descriptor that an object exports.

`open_safetensors` maps a file of weights, and `save_safetensors` writes one.

On Linux, `seal` copies arrays into memory that other processes read without a copy. `channel`
makes a stream of arrays to another process: over shared memory on Linux, as bytes elsewhere.
"""

from dlbridge._native import (
    DLPACK_VERSION,
    Channel,
    Loan,
    Message,
    SealedTensors,
    Tensor,
    UnsealedTensors,
    __version__,
    channel,
    empty_sealed,
    from_bytes,
    from_dlpack,
    open_handle,
    open_sealed,
    save_safetensors,
    seal,
    seal_safetensors,
    zeros,
)

# True for type checkers. The import of `typing`, which has such a name as well, takes milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from dlbridge._inspect import Description, inspect
    from dlbridge._protocol import SupportsDLPack
    from dlbridge._safetensors import SafetensorsFile, open_safetensors

__all__ = [
    "DLPACK_VERSION",
    "Channel",
    "Description",
    "Loan",
    "Message",
    "SafetensorsFile",
    "SealedTensors",
    "SupportsDLPack",
    "Tensor",
    "UnsealedTensors",
    "__version__",
    "channel",
    "empty_sealed",
    "from_bytes",
    "from_dlpack",
    "inspect",
    "open_handle",
    "open_safetensors",
    "open_sealed",
    "save_safetensors",
    "seal",
    "seal_safetensors",
    "zeros",
]


# Imported at the first use.
_LATER = {
    "Description": "_inspect",
    "inspect": "_inspect",
    "SupportsDLPack": "_protocol",
    "SafetensorsFile": "_safetensors",
    "open_safetensors": "_safetensors",
}


def __getattr__(name: str) -> object:
    """Import a name at its first use."""
    if name not in _LATER:
        message = f"module 'dlbridge' has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(__import__(f"dlbridge.{_LATER[name]}", fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
