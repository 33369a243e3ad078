"""`open_safetensors`, and the mapping that it returns."""

from collections.abc import Iterator, Mapping
from os import PathLike
from types import TracebackType

from dlbridge import _native


class SafetensorsFile(Mapping[str, _native.Tensor]):
    """The tensors of a file by their names, in the order of the file; `open_safetensors` makes it.

    A `with` block drops the references of this object at its end. Arrays that were made stay valid.
    """

    def __init__(
        self, tensors: dict[str, _native.Tensor], metadata: dict[str, str], nbytes: int
    ) -> None:
        """Take what the native module found."""
        self._tensors: dict[str, _native.Tensor] | None = tensors
        self.metadata = metadata
        self.nbytes = nbytes

    @property
    def _open(self) -> dict[str, _native.Tensor]:
        # Read once: another thread may leave the `with` block meanwhile.
        tensors = self._tensors
        if tensors is None:
            message = "expected an open file, found one that its `with` block closed"
            raise ValueError(message)
        return tensors

    def tensors(self) -> dict[str, _native.Tensor]:
        """All tensors, in a dict."""
        return dict(self._open)

    def __getitem__(self, name: str) -> _native.Tensor:
        """One of the tensors."""
        return self._open[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._open)

    def __len__(self) -> int:
        """How many tensors there are."""
        return len(self._open)

    def __enter__(self) -> "SafetensorsFile":
        """Return the object itself."""
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Drop the tensors."""
        self._tensors = None

    def __repr__(self) -> str:
        """Describe the file."""
        found = self._tensors
        tensors = "closed" if found is None else f"{len(found)} tensors"
        return f"dlbridge.SafetensorsFile({tensors}, nbytes={self.nbytes})"


def open_safetensors(path: str | PathLike[str], /, *, private: bool = False) -> SafetensorsFile:
    """Map a safetensors file, or a sharded model by its `*.index.json`: nothing is read before use.

    The tensors are read-only, or writable with `private`: a write copies the page, and the file
    keeps its values. A write through PyTorch, which ignores `readonly`, goes to a copy as well.

    Another process can write to the file, which changes the values, or make it shorter, which ends
    this process where it reads a page that is gone. Replacing the file is harmless.
    `seal_safetensors` makes a copy that does not change.
    """
    return SafetensorsFile(*_native.open_safetensors(path, private))
