"""Where a framework differs from the plain rule: the same memory, values, layout and access.

The facts were measured; each row says one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from .cases import EMPTY, LEGACY, NATIVE, NIBBLES, READONLY, VERSIONED, Case
from .kinds import FRAMEWORKS

IMPORT, EXPORT = "import", "export"


@dataclass(frozen=True)
class Quirk:
    """What holds for some cells of one framework, in one direction."""

    framework: str
    direction: str
    when: Callable[[Case], bool] = lambda _case: True
    error: type[Exception] | tuple[type[Exception], ...] | None = None
    """The cell is refused with it."""
    readonly: bool | None = None
    """What is seen of the access, whatever the source allows."""
    strides: tuple[int, ...] | None = None
    """What is seen of the strides."""
    pointer: int | None = None
    """The address seen."""
    dtype: str | None = None
    """The name seen of the element type."""
    copied: bool = False
    """The values are elsewhere, and the source is released."""


def _readonly(case: Case) -> bool:
    return case.access == READONLY


def _legacy_readonly(case: Case) -> bool:
    return case.access == READONLY and case.protocol == LEGACY


def _legacy(case: Case) -> bool:
    return case.protocol == LEGACY


def _native(case: Case) -> bool:
    return case.protocol == NATIVE


def _versioned(case: Case) -> bool:
    return case.protocol == VERSIONED


def _reversed(case: Case) -> bool:
    return any(stride < 0 for stride in case.layout.strides)


def _gapped(case: Case) -> bool:
    return case.layout.name in ("strided", "reversed", "broadcast")


def _misaligned(case: Case) -> bool:
    return case.layout.name == "offset"


def _foreign(framework: str) -> Callable[[Case], bool]:
    return lambda case: case.dtype.name not in FRAMEWORKS[framework].dtypes


def _half(case: Case) -> bool:
    return case.dtype.name == "float16"


def _packed(case: Case) -> bool:
    return case.dtype.name in NIBBLES


def _not_a_dense_row(case: Case) -> bool:
    return case.layout.name not in ("row", "empty row", "offset row")


def _empty(case: Case) -> bool:
    return case.layout.name in EMPTY


def _old_jax() -> bool:
    """A release that neither gives nor asks for more than the old ABI."""
    return not FRAMEWORKS["jax"].gives_versioned


def _gives_legacy(framework: str) -> Callable[[Case], bool]:
    known = FRAMEWORKS[framework]
    return lambda case: case.protocol == LEGACY or not getattr(known, "gives_versioned", True)


QUIRKS: tuple[Quirk, ...] = (
    # We ourselves refuse the old ABI for memory that must not be written.
    *(Quirk(name, EXPORT, _legacy_readonly, error=BufferError) for name in FRAMEWORKS),
    # The old ABI has no flag: numpy and pyarrow.Tensor refuse, torch gives the new ABI unasked.
    Quirk("numpy", IMPORT, _legacy_readonly, error=BufferError),
    Quirk("array-api-strict", IMPORT, _legacy_readonly, error=BufferError),
    Quirk("pyarrow.Tensor", IMPORT, _legacy_readonly, error=NotImplementedError),
    # What comes by the old ABI is read-only, since nothing says that it may be written.
    *(Quirk(name, IMPORT, _gives_legacy(name), readonly=True) for name in FRAMEWORKS),
    # An empty array has no address: torch and pyarrow give NULL.
    Quirk("torch", IMPORT, _empty, pointer=0),
    Quirk("pyarrow.Array", IMPORT, _empty, pointer=0),
    Quirk("pyarrow.Tensor", IMPORT, _empty, pointer=0),
    # What is not in the framework's list of types; NumPy 2.5 made it a BufferError.
    Quirk("numpy", EXPORT, _foreign("numpy"), error=(RuntimeError, BufferError)),
    Quirk("array-api-strict", EXPORT, _half, error=TypeError),
    Quirk(
        "array-api-strict", EXPORT, _foreign("array-api-strict"), error=(RuntimeError, BufferError)
    ),
    Quirk("torch", EXPORT, _foreign("torch"), error=BufferError),
    Quirk("jax", EXPORT, _foreign("jax"), error=RuntimeError),
    Quirk("pyarrow.Array", EXPORT, _foreign("pyarrow.Array"), error=(ValueError, TypeError)),
    Quirk("pyarrow.Tensor", EXPORT, _foreign("pyarrow.Tensor"), error=(ValueError, TypeError)),
    # NumPy takes what the old ABI gives as read-only, since nothing says that it may be written.
    Quirk("numpy", EXPORT, _legacy, readonly=True),
    Quirk("array-api-strict", EXPORT, _legacy, readonly=True),
    # torch has no negative steps, and no address for nothing.
    Quirk("torch", EXPORT, _reversed, error=RuntimeError),
    Quirk("torch", EXPORT, _empty, pointer=0),
    # jax takes permuted axes, but no gaps; it copies what does not lie on 64 bytes.
    Quirk("jax", EXPORT, readonly=True),
    Quirk(
        "jax",
        EXPORT,
        lambda case: _readonly(case) and _old_jax() and _native(case),
        error=BufferError,
    ),
    Quirk("jax", EXPORT, _gapped, error=RuntimeError),
    Quirk("jax", EXPORT, _misaligned, copied=True),
    Quirk("jax", EXPORT, lambda case: _versioned(case) and _old_jax(), error=RuntimeError),
    # Its own packed type does not come back.
    Quirk("jax", EXPORT, _packed, error=RuntimeError),
    # pyarrow takes the new ABI only; its Array has one axis without gaps, its Tensor no
    # negative steps.
    Quirk("pyarrow.Array", EXPORT, _legacy, error=ValueError),
    Quirk("pyarrow.Tensor", EXPORT, _legacy, error=ValueError),
    Quirk("pyarrow.Array", EXPORT, readonly=True),
    Quirk("pyarrow.Array", EXPORT, _not_a_dense_row, error=ValueError),
    Quirk("pyarrow.Tensor", EXPORT, _reversed, error=ValueError),
    # For nothing it has memory of its own, or none, and lets the source go.
    Quirk("pyarrow.Array", EXPORT, _empty, copied=True),
    Quirk("pyarrow.Tensor", EXPORT, _empty, copied=True, readonly=True),
    # tvm-ffi takes our exchange table, or the old ABI.
    Quirk("tvm-ffi", EXPORT, _versioned, error=ValueError),
)


def quirks_of(framework: str, direction: str, case: Case) -> list[Quirk]:
    """The rows that hold for a cell, the most telling first."""
    return [
        quirk
        for quirk in QUIRKS
        if (quirk.framework, quirk.direction) == (framework, direction) and quirk.when(case)
    ]


def expectation(framework: str, direction: str, case: Case) -> Quirk:
    """What a cell must show: the rows that hold for it as one, a refusal before all else."""
    rows = quirks_of(framework, direction, case)
    refusals = [row for row in rows if row.error]
    if refusals:
        return refusals[0]
    merged = Quirk(framework, direction)
    for row in rows:
        names = [f.name for f in fields(row) if getattr(row, f.name) is not f.default]
        merged = replace(merged, **{name: getattr(row, name) for name in names})
    return merged
