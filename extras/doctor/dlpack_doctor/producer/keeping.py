"""Memory stays valid while an export is in use, and every export is one of its own."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from typing import Any

from dlpack_doctor import memory
from dlpack_doctor.export import Export, attempt, best, both
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Array, Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, Verdict, describe, failed, passed

BLOCKS, POISON = 64, 0x77
EXPORTS = 300


def _overwrite_freed(size: int) -> None:
    """Fill blocks of the C library's allocator that were freed a moment ago."""
    libc: Any = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    sizes = [n for n in {16, 24, 48, max(size, 1), size + 128} for _ in range(BLOCKS)]
    blocks = [libc.malloc(n) for n in sizes]
    for block, n in zip(blocks, sizes, strict=True):
        ctypes.memset(block, POISON, n)
    for block in blocks:
        libc.free(block)
    # The same for Python's own allocator of small objects.
    kept = [bytes([POISON]) * max(size, 1) for _ in range(BLOCKS)]
    del kept


def _shares(subject: Subject) -> bool:
    """Whether two arrays that are alive together have the same memory."""
    one, other = subject.array(), subject.array()
    return best(one).pointer == best(other).pointer


def _kept(subject: Subject, **keywords: Any) -> Outcome:
    """Whether an export outlives its array."""
    shared = _shares(subject)
    array = subject.array()
    answer: Export | Exception
    if keywords:
        answer = attempt(array, max_version=(1, 3), **keywords)
        if isinstance(answer, Exception):
            raise NotApplicable(f"exports no copy ({describe(answer)})")
        exports = [answer]
    else:
        exports = both(array)
    pointers = [one.pointer for one in exports]
    # Read before the capsules are dropped, which must not free anything.
    expected = [one.values() for one in exports]
    held = [one.take() for one in exports]
    nbytes = [
        len(values) * one.export.tensor.bits // 8
        for one, values in zip(held, expected, strict=True)
    ]
    del array, exports
    gc.collect()
    _overwrite_freed(max(nbytes))
    others = [subject.array() for _ in range(BLOCKS)]
    with contextlib.suppress(NotApplicable):
        others.append(subject.array(subject.shape[::-1]))
    reused = not shared and {best(one).pointer for one in others} & set(pointers)
    try:
        found = [one.export.values() for one in held]
    except NotApplicable as error:
        return failed(f"once the array is dropped: {error}")
    finally:
        del others
    for one in held:
        one.release()
    for before, after in zip(expected, found, strict=True):
        if before != after:
            return failed(f"holds {after[:6]} once the array is dropped, not {before[:6]}")
    if reused:
        return failed("the memory is used for another array while the export is in use")
    return passed()


@check(
    "producer.owner-kept",
    "DLPack 1.3, DLManagedTensor: memory is borrowed until the deleter is called",
)
def owner_kept(subject: Subject) -> Outcome:
    """memory, shape and strides stay valid once the array is dropped."""
    outcome = _kept(subject)
    return outcome if outcome.verdict is Verdict.FAIL else _large_kept(subject)


def _large_kept(subject: Subject) -> Outcome:
    """The same of memory that an allocator returns to the system."""
    try:
        array = subject.array((memory.ELEMENTS,))
        export = best(array)
    except NotApplicable:
        return passed()
    if export.shape != (memory.ELEMENTS,) or export.strides not in (None, (1,)):
        return passed()
    ends = [export.pointer, export.pointer + memory.ELEMENTS * export.tensor.bits // 8 - 64]
    before = [memory.read(address, 64) for address in ends]
    held = export.take()
    del array, export
    gc.collect()
    others = [subject.array((memory.ELEMENTS,)) for _ in range(2)]
    reused = ends[0] in {best(other).pointer for other in others}
    after = [memory.read(address, 64) for address in ends]
    if None in after:
        return failed(f"the memory of {memory.ELEMENTS} elements is gone once the array is dropped")
    held.release()
    if reused or before != after:
        text = "other numbers, or another array, are in the memory of"
        return failed(f"{text} {memory.ELEMENTS} elements once the array is dropped")
    return passed()


@check(
    "producer.copy-kept",
    "DLPack 1.3, DLManagedTensor: memory is borrowed until the deleter is called",
)
def copy_kept(subject: Subject) -> Outcome:
    """A copy stays valid once the array is dropped."""
    if isinstance(attempt(subject.array(), copy=None), TypeError):
        raise NotApplicable("copy is not known")
    return _kept(subject, copy=True)


@check("producer.fresh-capsule", "DLPack, Python specification: a capsule is consumed exactly once")
def fresh_capsule(subject: Subject) -> Outcome:
    """__dlpack__ can be called again, and returns another capsule."""
    array = subject.array()
    for keywords in ({}, {"max_version": (1, 3)}):
        one, other = attempt(array, **keywords), attempt(array, **keywords)
        if isinstance(one, Exception):
            continue
        if isinstance(other, Exception):
            return failed(f"a second call raises {describe(other)}")
        if one.capsule is other.capsule:
            return failed("two calls return the same capsule")
    return passed()


@check("producer.small-leak", "DLPack 1.3, deleter: destroys the managed tensor itself")
def small_leak(subject: Subject) -> Outcome:
    """Thousands of exports that are released leave no memory behind."""
    array = subject.array()
    if not best(array).raw.deleter:
        raise NotApplicable("there is no deleter")

    def grown() -> int:
        before = memory.allocated_bytes()
        if before is None:
            raise NotApplicable("this system does not report allocations")
        for _ in range(EXPORTS):
            best(array).take().release()
        return (memory.allocated_bytes() or 0) - before

    grown()
    # Once a cache or so may grow; a leak does so every time.
    least = min(grown() for _ in range(3)) // EXPORTS
    return failed(f"about {least} bytes stay, each time") if least >= 16 else passed()


@check(
    "producer.refusal-leak", "DLPack 1.3, DLManagedTensor: there is none, so nothing is borrowed"
)
def refusal_leak(subject: Subject) -> Outcome:
    """A refused export keeps no reference to the array."""
    array: Array = subject.array()
    refuses: list[dict[str, Any]] = [{"dl_device": (9, 0)}, {"stream": 1}]
    tried = 0
    attempt(array, **refuses[0])
    before = memory.references(array)
    for keywords in refuses * 8:
        answer = attempt(array, **keywords)
        if isinstance(answer, Exception):
            tried += 1
        else:
            answer.take().release()
    del answer
    if not tried:
        raise NotApplicable("refuses nothing that the doctor asks for")
    after = memory.references(array)
    return failed(f"{after - before} references stay") if after - before >= 8 else passed()
