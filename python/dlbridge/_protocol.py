"""The protocol of DLPack as a type."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of any framework, for annotations and `isinstance`. Stubs of PyO3 name it."""

    # The types of JAX's arrays list no other method of DLPack.
    def __dlpack__(self) -> object:
        """Return a capsule over the memory."""
