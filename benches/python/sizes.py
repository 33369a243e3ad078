"""Times a share of an array through Rust beside a copy of it, from a kibibyte to 256 MiB.

`cargo xtask bench python sizes` runs this. Each line that it prints is a record: bytes, who,
nanoseconds of the quickest round, bytes of resident memory that one result adds; tabs between.
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
# A round shares so often, and copies about so many bytes.
SHARES = 200
BYTES = 8 << 20
# So many results are kept at once when memory is measured, at most.
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
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def added(way: Callable[[Any], Any], array: Any) -> float:
    """What one result adds; few large ones are kept, or many small ones."""
    number = max(1, min(KEPT, BYTES // array.nbytes))
    results: list[Any] = [None] * (2 * number)
    # The first half takes what memory there is from earlier results.
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
