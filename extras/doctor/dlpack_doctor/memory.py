"""Whether memory comes back: references, weak references, and the process's own memory.

What is exported meanwhile belongs to the checks.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")
OWN = ("RssAnon:", "RssShmem:", "VmSwap:")
ROUNDS, ELEMENTS = 12, 1 << 20
BYTES = 4 * ELEMENTS


def own_bytes() -> int | None:
    """The memory of the process after a collection, without the pages of files, which the kernel
    drops when memory is short; None where the system does not report it.
    """
    gc.collect()
    if not STATUS.exists():
        return None
    lines = STATUS.read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(OWN))


class _Mallinfo(ctypes.Structure):
    """glibc's report on its allocator."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def allocated_bytes() -> int | None:
    """The bytes that the C library's allocator and Python's own have allocated; None without
    glibc."""
    gc.collect()
    mallinfo: Any = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return None
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return int(info.uordblks) + int(info.hblkhd) + 32 * sys.getallocatedblocks()


def leaks(round_trip: Callable[[], None]) -> bool | None:
    """Whether rounds with an array of `BYTES` each leave most of those bytes behind.

    A leak does so every time; what a framework or an allocator keeps to use again, does not.
    None where the system does not report it.
    """
    for _ in range(3):
        round_trip()
    for _ in range(3):
        before = _measures()
        if not before:
            return None
        for _ in range(ROUNDS):
            round_trip()
        if settle(functools.partial(_are_back, before), seconds=0.5):
            return False
    return True


def _measures() -> list[int]:
    """The process's own bytes, and its allocators': pages of a freed block that the C library kept
    hide a leak from the first, and what a framework maps by itself is not in the second.
    """
    return [measure for measure in (own_bytes(), allocated_bytes()) if measure is not None]


def _are_back(before: list[int]) -> bool:
    grown = (now - then for now, then in zip(_measures(), before, strict=True))
    return all(growth < ROUNDS * BYTES // 2 for growth in grown)


def read(address: int, size: int) -> bytes | None:
    """A few bytes of this process, read by the system; None where no page is."""
    out, into = os.pipe()
    try:
        libc: Any = ctypes.CDLL(None)
        written = libc.write(into, ctypes.c_void_p(address), ctypes.c_size_t(size))
        return os.read(out, size) if written == size else None
    finally:
        os.close(out)
        os.close(into)


def weak(thing: Any) -> weakref.ref[Any] | None:
    """A weak reference, where the type has them."""
    try:
        return weakref.ref(thing)
    except TypeError:
        return None


def references(thing: Any) -> int:
    """How many references a thing has, after a collection."""
    gc.collect()
    return sys.getrefcount(thing)


def settle(done: Callable[[], bool], seconds: float = 2.0) -> bool:
    """Wait for what a framework does on a thread of its own, or at a collection."""
    deadline = time.monotonic() + seconds
    while not done():
        gc.collect()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True
