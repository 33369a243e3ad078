from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, final

from typing_extensions import Buffer, CapsuleType

_Shape: TypeAlias = int | Sequence[int]

class _CudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

_Stream: TypeAlias = int | _CudaStream

__version__: str
DLPACK_VERSION: tuple[int, int]

@final
class Tensor:
    """A tensor over memory of any framework, or of Rust.

    `readonly` memory must not be written. PyTorch, Paddle and TVM-FFI ignore the flag: a write
    through their arrays changes memory that Rust treats as constant, or ends the process. Export a
    copy to them: `from_dlpack(x, copy=True)`.
    """

    __dlpack_c_exchange_api__: CapsuleType

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def itemsize(self) -> int | None: ...
    @property
    def readonly(self) -> bool: ...
    @property
    def requires_grad(self) -> bool: ...
    @property
    def contiguous(self) -> bool: ...
    @property
    def data_ptr(self) -> int: ...
    def __len__(self) -> int: ...
    def __dlpack__(
        self,
        *,
        stream: _Stream | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int | None] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def from_dlpack(
    x: object,
    /,
    *,
    device: str | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
) -> Tensor: ...
def zeros(shape: _Shape, *, dtype: str = "float64") -> Tensor: ...
def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: str | None = None,
) -> Tensor: ...
def from_bytes(data: Buffer, /, *, dtype: str = "uint8", shape: _Shape | None = None) -> Tensor: ...
def fill(tensor: Tensor, value: float, /) -> None: ...
def inspect(x: object, /) -> dict[str, Any]: ...
