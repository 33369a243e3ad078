"""Times sharing an array through Rust and copying it, from 1 KiB to 256 MiB.

`cargo xtask bench python sizes` runs this. Each printed line is a tab-separated record: bytes,
library, nanoseconds of the fastest round, bytes of resident memory that one result adds.
"""

import gc
import mmap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_dlbridge
import numpy as np

SIZES = [1 << power for power in range(10, 29, 2)]
ROUNDS = 15
COPY = "copy by NumPy"
# Shares per round, and approximate bytes copied per round.
SHARES = 200
BYTES = 8 << 20
# The most results that are kept alive at once to measure memory.
KEPT = 200


def ways() -> dict[str, Callable[[Any], Any]]:
    pass_on = bench_dlbridge.pass_on
    found: dict[str, Callable[[Any], Any]] = {
        "dlbridge to NumPy": lambda x: np.from_dlpack(pass_on(x)),
        COPY: np.copy,
    }
    try:
        import torch
    except ImportError:
        return found
    return {"dlbridge to PyTorch": lambda x: torch.from_dlpack(pass_on(x)), **found}


def resident() -> int:
    """The resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def added(way: Callable[[Any], Any], array: Any) -> float:
    """The memory that one result adds; few large ones are kept alive, or many small ones."""
    number = max(1, min(KEPT, BYTES // array.nbytes))
    results: list[Any] = [None] * (2 * number)
    # The first half reuses the memory that earlier results freed.
    for i in range(number):
        results[i] = way(array)
    gc.collect()
    before = resident()
    for i in range(number, 2 * number):
        results[i] = way(array)
    return max(0, resident() - before) / number


def quickest(way: Callable[[Any], Any], array: Any, calls: int) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(calls):
            way(array)
        times.append((time.perf_counter_ns() - start) / calls)
    return min(times)


def main() -> None:
    for size in SIZES:
        array = np.arange(size, dtype=np.uint8)
        for who, way in ways().items():
            is_copy = way is np.copy
            if np.shares_memory(np.asarray(way(array)), array) == is_copy:
                raise AssertionError(f"{who}: shared memory is {not is_copy}")
            calls = min(SHARES, max(1, BYTES // size)) if is_copy else SHARES
            ns = quickest(way, array, calls)
            print(size, who, f"{ns:.1f}", f"{added(way, array):.0f}", sep="\t", flush=True)


if __name__ == "__main__":
    main()
