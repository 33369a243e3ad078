"""An export: the capsule, the descriptor in it, and a counted deleter.

Invariant: the producer's own deleter runs at most once, however often it is called.
"""

from __future__ import annotations

import ctypes
from typing import Any

from dlpack_doctor import abi, elements, reproduce
from dlpack_doctor.verdict import Malformed, NotApplicable, describe


class NoCapsule(Exception):
    """The answer is no capsule that this protocol knows."""


class Counter:
    """How often a deleter was called."""

    def __init__(self, original: int | None) -> None:
        self.original = original
        self.calls = 0


_watched: dict[int, Counter] = {}


def _called(address: int) -> None:
    counter = _watched.get(address)
    if counter is None:
        return
    counter.calls += 1
    if counter.calls == 1 and counter.original:
        abi.Deleter(counter.original)(address)


_count = abi.Deleter(_called)


# A capsule dropped during an exception runs its destructor with the exception set, which crashes
# some producers. So capsules are kept until their check has ended.
_kept: dict[int, Any] = {}


def drop_capsules() -> None:
    """Drop every capsule that is still kept, between checks."""
    _kept.clear()


class Export:
    """A capsule that is not consumed, and the descriptor in it."""

    def __init__(self, capsule: Any) -> None:
        try:
            name = abi.name_of(capsule)
        except ValueError:
            raise NoCapsule(f"a {type(capsule).__name__}, not a capsule") from None
        if name not in abi.STRUCTS:
            raise NoCapsule(f"a capsule named {name!r}")
        self.capsule = _kept[id(capsule)] = capsule
        self.name = name
        self.keywords: dict[str, Any] = {}
        """What `__dlpack__` was asked for."""
        self.address = abi.pointer_of(capsule, name)
        self.raw: Any = abi.STRUCTS[name].from_address(self.address)
        head = abi.DLManagedTensorVersioned.from_address(self.address)
        if not self.versioned and head.major in (1, 2) and head.minor < 100:
            raise NoCapsule(
                f"a struct that begins with version {head.major}.{head.minor}, "
                "in a capsule named dltensor"
            )
        if self.versioned and not 0 < head.major < 1000:
            raise NoCapsule(
                "a struct that does not begin with a version, in a capsule named dltensor_versioned"
            )

    @property
    def versioned(self) -> bool:
        """Whether the descriptor has a header."""
        return self.name == abi.VERSIONED

    @property
    def version(self) -> tuple[int, int] | None:
        """What the header says; None without one."""
        return (self.raw.major, self.raw.minor) if self.versioned else None

    @property
    def kind(self) -> str:
        """The capsule's name, and the version if there is one."""
        if self.versioned:
            return f"dltensor_versioned {self.raw.major}.{self.raw.minor}"
        return "dltensor"

    @property
    def flags(self) -> int:
        """The header's flags; 0 without one."""
        return int(self.raw.flags) if self.versioned else 0

    @property
    def tensor(self) -> Any:
        """The descriptor."""
        return self.raw.tensor

    @property
    def ndim(self) -> int:
        """The number of axes, which must be sensible."""
        ndim = int(self.tensor.ndim)
        if not 0 <= ndim <= 64:
            raise Malformed(f"the descriptor's ndim is {ndim}")
        return ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        if self.ndim and not self.tensor.shape:
            raise Malformed(f"the descriptor's shape is NULL for {self.ndim} axes")
        shape = tuple(self.tensor.shape[: self.ndim]) if self.ndim else ()
        if min(shape, default=0) < 0:
            raise Malformed(f"the descriptor's shape is {shape}")
        return shape

    @property
    def strides(self) -> tuple[int, ...] | None:
        """The steps in elements; None where the pointer is null."""
        return tuple(self.tensor.strides[: self.ndim]) if self.tensor.strides else None

    @property
    def in_bytes(self) -> bool:
        """Whether the strides are those of a contiguous array, counted in bytes."""
        size, steps = self.tensor.bits // 8, elements.row_major(self.shape)
        # Along an axis of one element the stride says nothing.
        found = [
            (a, b) for a, b, n in zip(self.strides or (), steps, self.shape, strict=False) if n > 1
        ]
        return bool(found) and size > 1 and all(a == size * b for a, b in found)

    @property
    def dtype(self) -> tuple[int, int, int]:
        """Code, bits and lanes."""
        return (self.tensor.code, self.tensor.bits, self.tensor.lanes)

    @property
    def device(self) -> tuple[int, int]:
        """Type and id."""
        return (self.tensor.device_type, self.tensor.device_id)

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        return int(self.tensor.data or 0) + int(self.tensor.byte_offset)

    def values(self) -> list[Any]:
        """The elements, in row-major order."""
        if self.device[0] not in abi.HOST_DEVICES:
            raise NotApplicable(f"device type {self.device[0]} is not host memory")
        name = elements.NAMES.get(self.dtype)
        if name is None:
            raise NotApplicable(f"elements of {elements.name_of(self.dtype)} are not read here")
        shape = self.shape
        if 0 in shape:
            return []
        if not self.tensor.data:
            raise Malformed(f"data is NULL, but the shape is {shape}")
        if self.in_bytes:
            raise Malformed(f"the strides {self.strides} of shape {shape} are in bytes")
        if any(abs(step) >> 48 for step in self.strides or ()):
            raise Malformed(f"the strides {self.strides} reach beyond all memory")
        return elements.read(self.pointer, name, shape, self.strides or elements.row_major(shape))

    def watch(self) -> Counter:
        """Count the calls of the deleter from now on."""
        counter = Counter(self.raw.deleter)
        _watched[self.address] = counter
        self.raw.deleter = abi.address_of(_count)
        return counter

    def take(self) -> Taken:
        """Consume the capsule as a consumer does, and drop it."""
        abi.rename(self.capsule, abi.USED[self.name])
        self.drop()
        return Taken(self)

    def drop(self) -> None:
        """Drop the capsule now."""
        _kept.pop(id(self.capsule), None)
        self.capsule = None


class Taken:
    """A managed tensor that the doctor must release."""

    def __init__(self, export: Export) -> None:
        self.export = export
        self.deleter: int | None = export.raw.deleter

    def release(self) -> None:
        """Call the deleter without the GIL; the descriptor is freed then."""
        if self.deleter:
            deleter, self.deleter = self.deleter, None
            abi.Deleter(deleter)(self.export.address)


def ask(array: Any, **keywords: Any) -> Export:
    """The export for these keywords; exceptions of `__dlpack__` pass."""
    reproduce.note(keywords=keywords, name="")
    if not callable(getattr(array, "__dlpack__", None)):
        raise NotApplicable("there is no __dlpack__")
    reproduce.about_to_call()
    export = Export(array.__dlpack__(**keywords))
    export.keywords = keywords
    reproduce.note(name=export.name.decode())
    return export


def attempt(array: Any, **keywords: Any) -> Export | Exception:
    """The same, with an exception as a value. Without a capsule there is nothing to check."""
    try:
        return ask(array, **keywords)
    except NotApplicable:
        raise
    except NoCapsule as error:
        raise NotApplicable(f"returns {error}") from None
    except Exception as error:
        return error


def best(array: Any) -> Export:
    """The newest ABI that a producer exports, or there is nothing to check."""
    answer = attempt(array, max_version=(1, 3))
    if isinstance(answer, Exception):
        answer = attempt(array)
    if isinstance(answer, Exception):
        raise NotApplicable(f"no descriptor to look at ({describe(answer)})")
    return answer


def versioned(array: Any) -> Export:
    """The versioned export; without one there is nothing to check."""
    export = best(array)
    if not export.versioned:
        raise NotApplicable("exports no versioned capsule, so there are no flags")
    return export


def both(array: Any) -> list[Export]:
    """One export of each ABI that a producer has."""
    found: dict[bytes, Export] = {}
    for keywords in ({}, {"max_version": (1, 3)}):
        answer = attempt(array, **keywords)
        if isinstance(answer, Export) and found.setdefault(answer.name, answer) is not answer:
            answer.drop()
    if not found:
        raise NotApplicable("no descriptor to look at")
    last = list(found.values())[-1]
    reproduce.note(keywords=last.keywords, name=last.name.decode())
    return list(found.values())


def call_on_foreign_thread(function: int, argument: int) -> None:
    """Call a C function on a thread that Python does not know, without the GIL."""
    try:
        libc = ctypes.CDLL(None)
        create = libc.pthread_create
    except (AttributeError, TypeError):
        raise NotApplicable("this system has no pthread_create") from None
    thread = ctypes.c_ulong()
    status = create(
        ctypes.byref(thread), None, ctypes.c_void_p(function), ctypes.c_void_p(argument)
    )
    if status != 0:
        raise NotApplicable(f"no thread could be started: error {status}")
    libc.pthread_join(thread, None)
