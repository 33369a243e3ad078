"""The subject of the checks: makes arrays of one type, imports other arrays, and reads them.

Known frameworks belong to `frameworks`. Checks get a `Subject` and nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from dlpack_doctor import abi, elements, reproduce
from dlpack_doctor.export import best
from dlpack_doctor.source import Managed, Producer
from dlpack_doctor.verdict import NotApplicable, describe

Array = Any
Shape = tuple[int, ...]
VIEWS = {
    "offset": "x[1]",
    "corner": "x[1:, 1:]",
    "every second": "x[:, ::2]",
    "transposed": "x.T",
    "reversed": "x[:, ::-1]",
    "flipped": "x[:, ::-1].T",
}
"""Views as most frameworks write them."""


class FactoryFailed(NotApplicable):
    """The factory raised for the arguments that its signature asks for."""


@dataclass(frozen=True)
class Odd:
    """An array that DLPack cannot describe, or only with care."""

    label: str
    make: Callable[[], Array]
    numbers: Sequence[Any] | None = None
    """Its elements, where DLPack can describe it."""
    code: str = ""


@dataclass
class Subject:
    """One array type."""

    name: str
    version: str = ""
    make: Callable[[Shape, str], Array] | None = None
    """An array of that shape and element type, holding 0, 1, 2, ... in row-major order."""
    take: Callable[..., Array] | None = None
    """The framework's `from_dlpack`, with its keywords."""
    shape: Shape = (2, 3)
    """The shape that it is asked for by default."""
    any_shape: bool = True
    """Whether `make` heeds the shape."""
    any_dtype: bool = True
    """Whether `make` heeds the element type."""
    known: bool = True
    """Whether the arrays hold 0, 1, 2, ...; otherwise `tolist` says what they hold."""
    immutable: bool = False
    """Whether no array may ever be written."""
    freeze: Callable[[Array], Array] | None = None
    """A read-only array over the same memory."""
    views: Mapping[str, Callable[[Array], Array]] = field(default_factory=dict)
    """Views of an array of shape (2, 3), by the names in `producer.layouts`."""
    odd: Callable[[], Iterable[Odd]] = tuple
    """Arrays that it refuses to export, or should."""
    look: Callable[[Array], list[Any]] | None = None
    """An array's values by the framework's own means, nested or flat."""
    address: Callable[[Array], int] | None = None
    """The address of the first element by the framework's own means."""
    frozen: Callable[[Array], bool] | None = None
    """Whether an array may not be written, by the framework's own means."""
    setup: str = ""
    """The imports of a reproducer."""
    code: Callable[[Shape, str], str] | None = None
    """The expression of a reproducer that makes an array."""
    view_code: Mapping[str, str] = field(default_factory=dict)
    take_code: str = ""
    """The call of a reproducer, with `{}` for the producer."""

    def array(self, shape: Shape | None = None, dtype: str | None = None) -> Array:
        """A new array; where none can be made, the check does not apply."""
        if self.make is None:
            raise NotApplicable("it makes no arrays")
        if shape is not None and not self.any_shape:
            raise NotApplicable("its arrays have one shape only")
        if dtype is not None and not self.any_dtype:
            raise NotApplicable("its arrays have one element type only")
        asked = self.shape if shape is None else shape
        try:
            if self.code is not None:
                code = self.code(asked, dtype or "float32")
                reproduce.note(setup=self.setup, array=code, count=prod(asked))
            array = self.make(asked, dtype or "float32")
        except Exception as error:
            what = f"{dtype or 'float32'}{list(asked)}"
            if shape is None and dtype is None:
                raise FactoryFailed(f"for {what} the factory raised {describe(error)}") from None
            raise NotApplicable(f"it has no {what} ({describe(error)})") from None
        if array is None:
            raise FactoryFailed("the factory returned None")
        return array

    def view(self, name: str) -> Array:
        """A view of an array of shape (2, 3)."""
        if name not in self.views:
            raise NotApplicable("it has no such views, or the doctor does not know them")
        base = self.array((2, 3))
        reproduce.note(view=self.view_code.get(name, ""))
        try:
            return self.views[name](base)
        except Exception as error:
            raise NotApplicable(f"cannot make one ({describe(error)})") from None

    def expected(
        self, array: Array, dtype: str = "float32", shape: Shape | None = None
    ) -> list[Any]:
        """The values that an array of `array()` must hold."""
        if self.known:
            extents = shape_of(array) if shape is None else shape
            return elements.sample(dtype, prod(self.shape if extents is None else extents))
        return self.seen(array)

    @functools.cached_property
    def capsules_only(self) -> bool:
        """Whether `take` accepts capsules, but no object with `__dlpack__`."""
        if self.take is None:
            return False

        def answer(keywords: Mapping[str, Any]) -> Any:
            return Managed(self.shape, legacy=not keywords.get("max_version")).capsule()

        for offered in (Producer(answer), answer({}), answer({"max_version": (1, 3)})):
            with contextlib.suppress(Exception):
                self.take(offered)
                return not isinstance(offered, Producer)
        return False

    def importer(self) -> Callable[..., Array]:
        """`take` as a function of a producer."""
        if self.take is None:
            raise NotApplicable("it imports no arrays")
        take = self.take
        return (lambda producer: take(producer.__dlpack__())) if self.capsules_only else take

    @property
    def call_code(self) -> str:
        """`take_code`, with the capsule where only that is imported."""
        capsule = "{}.__dlpack__()" if self.capsules_only else "{}"
        return self.take_code.replace("{}", capsule)

    def taken(self, producer: Any, **keywords: Any) -> Array:
        """The array that its `from_dlpack` makes of a producer; exceptions pass."""
        importer = self.importer()
        words = "".join(f", {name}={value!r}" for name, value in keywords.items())
        code = f"{self.call_code[:-1]}{words})" if self.call_code else ""
        reproduce.note(setup=self.setup, take=code)
        reproduce.about_to_call()
        return importer(producer, **keywords)

    def values(self, array: Array) -> list[Any]:
        """An array's values."""
        if self.look is not None:
            return flat(self.look(array))
        export = best(array)
        values = export.values()
        export.drop()
        return values

    def seen(self, array: Array) -> list[Any]:
        """An array's values by its own means, not by an export."""
        if self.look is not None:
            return flat(self.look(array))
        try:
            return flat(array.tolist())
        except Exception:
            raise NotApplicable("the values of its arrays cannot be read (no tolist)") from None

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
        said = self.says_frozen(array)
        if said is not None:
            return said
        export = best(array)
        if not export.versioned:
            raise NotApplicable("no attribute of its arrays says whether they may be written")
        return bool(export.flags & abi.READ_ONLY)

    def says_frozen(self, array: Array) -> bool | None:
        """Whether an array says by usual means that it may not be written; None if it is silent."""
        if self.immutable:
            return True
        if self.frozen is not None:
            return self.frozen(array)
        flags = getattr(array, "flags", None)
        for thing, name, means in (
            (flags, "writeable", False),
            (array, "readonly", True),
            (array, "read_only", True),
        ):
            answer = getattr(thing, name, None)
            if isinstance(answer, bool):
                return answer is means
        interface = getattr(array, "__array_interface__", None)
        if isinstance(interface, dict) and isinstance(interface.get("data"), tuple):
            return bool(interface["data"][1])
        try:
            return memoryview(array).readonly
        except (TypeError, BufferError, ValueError):
            return None

    def says_dtype(self, array: Array) -> str | None:
        """The element type that an array says it has, if it has one of that name."""
        try:
            said = str(getattr(array, "dtype", getattr(array, "type", ""))).rpartition(".")[2]
        except Exception:
            return None
        return said if said in elements.DTYPES else None

    def dtype_of(self, array: Array) -> tuple[int, int, int] | None:
        """The element type that an array exports; None if it exports nothing."""
        try:
            return best(array).dtype
        except NotApplicable:
            return None


def shape_of(array: Array) -> Shape | None:
    """What an array says of its shape; None where that is no attribute with numbers."""
    try:
        return tuple(map(int, array.shape))
    except (AttributeError, TypeError, ValueError):
        return None


def flat(values: Any) -> list[Any]:
    """Nested lists as one."""
    if isinstance(values, list | tuple):
        return [number for value in values for number in flat(value)]
    return [values]


def of_factory(
    factory: Callable[..., Array],
    name: str,
    take: Callable[[Any], Array] | None = None,
    where: str = "",
) -> Subject:
    """A subject whose arrays come from `factory()`, `factory(shape)` or `factory(shape, dtype)`.

    `shape` is a tuple, `dtype` a name such as "float32". The arrays may hold any numbers: their
    `tolist` says which. `where` is the module, for reproducers.
    """
    count = _positional(factory)

    def make(shape: Shape, dtype: str) -> Array:
        return factory(*(shape, dtype)[:count])

    def code(shape: Shape, dtype: str) -> str:
        words = ", ".join(map(repr, (shape, dtype)[:count]))
        return f"{name.replace(':', '.')}({words})"

    return Subject(
        name,
        make=make,
        take=take,
        any_shape=count > 0,
        any_dtype=count > 1,
        known=False,
        views={view: eval(f"lambda x: {code}") for view, code in VIEWS.items()},
        view_code=VIEWS,
        setup=f"import {where}",
        code=code if where else None,
        take_code=f"{where}.from_dlpack({{}})" if where and take else "",
    )


def _positional(factory: Callable[..., Array]) -> int:
    """How many of shape and dtype a factory requires, or has names for."""
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
    # With a third required argument the call fails, and `producer.factory` reports it.
    return min(len(given), 2)
