"""What is examined: how to make arrays of one kind, take somebody else's, and look into them.

Known frameworks belong to `frameworks`. Checks get a `Subject` and nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlbridge.doctor import abi, elements
from dlbridge.doctor.export import attempt, best
from dlbridge.doctor.verdict import NotApplicable, describe

Array = Any
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Odd:
    """An array that DLPack cannot describe, or only just."""

    label: str
    make: Callable[[], Array]
    numbers: Sequence[Any] | None = None
    """What it holds, if that can be said in numbers."""


@dataclass
class Subject:
    """One kind of arrays."""

    name: str
    version: str = ""
    make: Callable[[Shape, str], Array] | None = None
    """An array of that shape and element type, holding 0, 1, 2, ... in row-major order."""
    take: Callable[[Any], Array] | None = None
    """The framework's `from_dlpack`."""
    take_copy: Callable[[Any], Array] | None = None
    """The same, asked for a copy."""
    shape: Shape = (2, 3)
    """The shape that it is asked for when any will do."""
    any_shape: bool = True
    """Whether `make` heeds the shape."""
    any_dtype: bool = True
    """Whether `make` heeds the element type."""
    known: bool = True
    """Whether the arrays hold 0, 1, 2, ..., rather than what they say themselves."""
    immutable: bool = False
    """Whether no array may ever be written."""
    freeze: Callable[[Array], Array] | None = None
    """A read-only array over the same memory."""
    views: Mapping[str, Callable[[Array], Array]] = field(default_factory=dict)
    """Views of an array of shape (2, 3), by the names in `producer.layouts`."""
    odd: Callable[[], Iterable[Odd]] = tuple
    """What it refuses to export, or should."""
    look: Callable[[Array], list[Any]] | None = None
    """An array's values by the framework's own means, nested or flat."""
    address: Callable[[Array], int] | None = None
    """The address of the first element by the framework's own means."""
    frozen: Callable[[Array], bool] | None = None
    """Whether an array may not be written, by the framework's own means."""

    def array(self, shape: Shape | None = None, dtype: str | None = None) -> Array:
        """A new array, or there is nothing to check."""
        if self.make is None:
            raise NotApplicable("it makes no arrays")
        if shape is not None and not self.any_shape:
            raise NotApplicable("its arrays have one shape only")
        if dtype is not None and not self.any_dtype:
            raise NotApplicable("its arrays have one element type only")
        try:
            return self.make(self.shape if shape is None else shape, dtype or "float32")
        except Exception as error:
            what = f"{dtype or 'float32'}{list(self.shape if shape is None else shape)}"
            raise NotApplicable(f"it has no {what} ({describe(error)})") from None

    def expected(self, array: Array, dtype: str = "float32") -> list[Any]:
        """The values that an array of `array()` must hold."""
        if self.known:
            return elements.sample(dtype, _count(array, self.shape))
        try:
            return flat(array.tolist())
        except Exception:
            raise NotApplicable("its arrays do not tell their values (no tolist)") from None

    def taken(self, producer: Any) -> Array:
        """What its `from_dlpack` makes of a producer; exceptions pass."""
        if self.take is None:
            raise NotApplicable("it takes no arrays")
        return self.take(producer)

    def values(self, array: Array) -> list[Any]:
        """An array's values."""
        if self.look is not None:
            return flat(self.look(array))
        export = best(array)
        values = export.values()
        export.drop()
        return values

    def pointer(self, array: Array) -> int:
        """The address of an array's first element."""
        if self.address is not None:
            return self.address(array)
        export = best(array)
        pointer = export.pointer
        export.drop()
        return pointer

    def is_frozen(self, array: Array) -> bool:
        """Whether an array may not be written."""
        if self.immutable:
            return True
        if self.frozen is not None:
            return self.frozen(array)
        export = best(array)
        if not export.versioned:
            raise NotApplicable("its arrays do not tell whether they may be written")
        return bool(export.flags & abi.READ_ONLY)

    def dtype_of(self, array: Array) -> tuple[int, int, int] | None:
        """The element type that an array exports; None if it exports nothing."""
        answer = attempt(array, max_version=(1, 3))
        if isinstance(answer, Exception):
            answer = attempt(array)
        return None if isinstance(answer, Exception) else answer.dtype


def flat(values: Any) -> list[Any]:
    """Nested lists as one."""
    if isinstance(values, list | tuple):
        return [number for value in values for number in flat(value)]
    return [values]


def _count(array: Array, otherwise: Shape) -> int:
    shape = getattr(array, "shape", None)
    count = 1
    for extent in otherwise if shape is None else shape:
        count *= int(extent)
    return count


def of_factory(
    factory: Callable[..., Array], name: str, take: Callable[[Any], Array] | None = None
) -> Subject:
    """A subject whose arrays come from `factory()`, `factory(shape)` or `factory(shape, dtype)`.

    `shape` is a tuple, `dtype` a name such as "float32". What the arrays hold does not matter:
    they tell it themselves (`tolist`), or it is not checked.
    """
    count = _positional(factory)

    def make(shape: Shape, dtype: str) -> Array:
        return factory(*(shape, dtype)[:count])

    return Subject(
        name, make=make, take=take, any_shape=count > 0, any_dtype=count > 1, known=False
    )


def _positional(factory: Callable[..., Array]) -> int:
    """How many of shape and dtype a factory must be given, or has names for."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return 0
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [
        one
        for one in parameters
        if one.kind in kinds
        and (one.default is inspect.Parameter.empty or one.name in ("shape", "dtype"))
    ]
    return min(len(given), 2)


def of_namespace(space: Any, name: str) -> Subject:
    """A subject made of an array API namespace: `arange`, `reshape`, `astype`, `from_dlpack`."""

    def make(shape: Shape, dtype: str) -> Array:
        count = 1
        for extent in shape:
            count *= extent
        row = space.reshape(space.arange(count), shape)
        if dtype == "bool":
            return row % 2 == 1
        return space.astype(row, getattr(space, dtype))

    take = getattr(space, "from_dlpack", None)
    return Subject(
        name,
        version=str(getattr(space, "__version__", "")),
        make=make if hasattr(space, "arange") else None,
        take=take,
        take_copy=None if take is None else lambda x: take(x, copy=True),
    )
