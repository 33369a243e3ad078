"""Compares sealed tensors with other ways between two processes: opening, memory, batches.

`cargo xtask bench processes` runs this, with the built package installed. Each printed line is a
tab-separated record: `open BYTES LANGUAGE WAY NANOSECONDS`, the median; `added READERS WAY` with
the bytes of a reader's own memory, of shared memory and of page tables, each per reader;
`moved BYTES READERS WAY SECONDS CPU` for a batch, the best round, with the CPU time of
all processes; or `note` and why a way is left out.
"""

from __future__ import annotations

import importlib.util
import mmap
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
from ways import AHEAD, WAYS, ByHand, Named, Queued, Sealed, Torch, Way, context

import dlbridge

SIZES = [1 << 10, 1 << 20, 64 << 20, 1 << 30]
OPENED = 101
READERS = [1, 2, 8]
READ = 64 << 20
# The size of a batch, and how many one round sends: so many that the first ones, whose memory is
# new, count for little.
BATCHES = {1 << 10: 10_000, 64 << 10: 5000, 1 << 20: 500, 16 << 20: 100}
ROUNDS = 2

# A process that takes so many seconds is stuck.
STUCK = 180


def make_batches(ways: list[Way], count: int, frees: Any, begin: Any, end: Any, told: Any) -> None:
    signal.alarm(STUCK)
    first, *others = ways
    first.start(is_maker=True)
    told.put(0.0)
    begin.wait()
    before = time.process_time()
    for number in range(count):
        for free in frees:
            free.acquire()
        first.send_all(others, first.make(number))
    told.put(time.process_time() - before)
    # A descriptor in a Queue is the sender's until it is received.
    end.wait()


def read_batches(way: Way, count: int, free: Any, begin: Any, told: Any) -> float:
    """The time from the first batch on; what it took of the CPU is told."""
    signal.alarm(STUCK)
    way.start(is_maker=False)
    told.put(0.0)
    begin.wait()
    began, before = 0.0, time.process_time()
    for number in range(count):
        array = way.receive()
        assert array.size == way.size
        assert array[0] == array[-1] == number % 251
        assert int(array[::4096].sum(dtype="int64")) == number % 251 * -(-way.size // 4096)
        del array
        way.done()
        free.release()
        began = began or time.perf_counter()
    told.put(time.process_time() - before)
    return time.perf_counter() - began


def seconds(kind: type[Any], size: int, count: int, readers: int) -> tuple[float, float]:
    """The time of a batch, from the second one on: filled, sent, and one byte of each page read by
    each reader. And the CPU time of all processes for it."""
    ways = kind.several(size, readers)
    frees = [context.Semaphore(AHEAD) for _ in ways]
    begin, end, told = context.Event(), context.Event(), context.SimpleQueue()
    arguments = (ways, count, frees, begin, end, told)
    children = [context.Process(target=make_batches, args=arguments)]
    for way, free in zip(ways[1:], frees[1:], strict=True):
        arguments = (way, count, free, begin, told)
        children.append(context.Process(target=read_batches, args=arguments))
    for child in children:
        child.start()
    # Each has started, then all begin.
    begin_all = threading.Thread(
        target=lambda: [*(told.get() for _ in range(readers + 1)), begin.set()]
    )
    begin_all.start()
    taken = read_batches(ways[0], count, frees[0], begin, told)
    begin_all.join()
    cpu = sum(told.get() for _ in range(readers + 1))
    end.set()
    for child in children:
        child.join()
        assert child.exitcode == 0, f"{kind.label}: a process ended with {child.exitcode}"
    return taken / (count - 1), cpu / count


def kilobytes(path: str, word: str) -> int:
    found = re.search(rf"^{word}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    assert found, (path, word)
    return int(found[1]) << 10


def own_memory() -> tuple[int, int]:
    """The bytes of this process that are no pages of a file, and those of its page tables."""
    return kilobytes("/proc/self/smaps_rollup", "Anonymous"), kilobytes(
        "/proc/self/status", "VmPTE"
    )


def shared_memory() -> int:
    return kilobytes("/proc/meminfo", "Shmem")


def read_one(tiny: Way, way: Way, told: Any, end: Any) -> None:
    signal.alarm(STUCK)
    # What the first batch allocates for every later one is left out.
    assert int(tiny.receive()[0]) == 1
    before = own_memory()
    array = way.receive()
    assert int(array.sum(dtype="int64")) == way.size
    after = own_memory()
    told.put(tuple(later - earlier for earlier, later in zip(before, after, strict=True)))
    end.wait()
    # Before the interpreter ends: a view of the memory would keep it from being closed.
    del array
    os._exit(0)


def added(kind: type[Any], readers: int) -> tuple[float, float, float]:
    """The bytes that each reader of one batch adds: its own, of shared memory, of page tables."""
    told, end = context.SimpleQueue(), context.Event()
    pairs = [(kind(mmap.PAGESIZE), kind(READ)) for _ in range(readers)]
    # A maker has no mapping of the batch that readers could inherit.
    children = [
        context.Process(target=read_one, args=(tiny, way, told, end)) for tiny, way in pairs
    ]
    for child in children:
        child.start()
    small, batch = (way.make(1) for way in pairs[0])
    before = shared_memory()
    for tiny, way in pairs:
        tiny.send(small)
        way.send(batch)
    found = [told.get() for _ in children]
    shared = (shared_memory() - before) / readers
    end.set()
    for child in children:
        child.join()
    for way, made in zip(pairs[0], (small, batch), strict=True):
        way.remove(made)
    own, tables = (sum(column) / readers for column in zip(*found, strict=True))
    return own, shared, tables


def opened(size: int) -> Iterator[tuple[str, float]]:
    """The time to open a tensor and to read its first element, by way."""
    sealed, memory = (
        dlbridge.empty_sealed(size, dtype="uint8"),
        SharedMemory(create=True, size=size),
    )
    sealed, path = sealed.seal(), Path("/dev/shm", memory.name)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, size)

    def ours() -> Any:
        return np.from_dlpack(dlbridge.open_sealed(sealed)["tensor"])

    def by_name() -> Any:
        opened = SharedMemory(memory.name)
        return np.ndarray(size, "uint8", opened.buf), opened

    def by_hand() -> Any:
        with path.open("rb") as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), "uint8")

    cases = {Sealed: ours, Named: by_name, ByHand: by_hand}
    times: dict[type[Any], list[int]] = {kind: [] for kind in cases}
    for _ in range(OPENED):
        for kind, function in cases.items():
            start = time.perf_counter_ns()
            result = function()
            first = result[0][0] if isinstance(result, tuple) else result[0]
            times[kind].append(time.perf_counter_ns() - start)
            assert first == 0
            del result, first
    memory.close()
    memory.unlink()
    for kind, found in times.items():
        yield kind.label, statistics.median(found)


def alone(*command: str) -> str:
    """The output of a command in a new process: a fork copies no locks of other threads."""
    words = [sys.executable, __file__, *command]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=STUCK, check=True)
    except subprocess.TimeoutExpired:
        print(f"note\t{command[1]} is left out: it took more than {STUCK} seconds")
        return ""
    except subprocess.CalledProcessError as error:
        print(f"note\t{command[1]} is left out: its process ended with status {error.returncode}")
        return ""
    return done.stdout


def main() -> None:
    # One process that keeps the names of shared memory, for all.
    resource_tracker.ensure_running()
    match sys.argv[1:]:
        case ["added", label, readers]:
            own, shared, tables = added(WAYS[label], int(readers))
            print(f"added\t{readers}\t{label}\t{own:.0f}\t{shared:.0f}\t{tables:.0f}")
            return
        case ["moved", label]:
            for size, count in BATCHES.items():
                for readers in (1, 3) if WAYS[label].has_readers else (1,):
                    print(size, readers, *seconds(WAYS[label], size, count, readers))
            return
    for size in SIZES:
        for who, ns in opened(size):
            print(f"open\t{size}\tPython\t{who}\t{ns:.0f}", flush=True)
    is_there = {
        kind.package: importlib.util.find_spec(kind.package) is not None for kind in WAYS.values()
    }
    for package, found in is_there.items():
        if not found:
            print(f"note\t{package} is not installed")
    labels = [label for label, kind in WAYS.items() if is_there[kind.package]]
    for kind in (Sealed, Torch, Named, Queued):
        for readers in READERS if kind.label in labels else ():
            print(alone("added", kind.label, str(readers)), end="", flush=True)
    best: dict[tuple[int, int, str], list[float]] = {}
    # In turns, so that other load on the machine affects all equally.
    for _ in range(ROUNDS):
        for label in list(labels):
            lines = alone("moved", label).splitlines()
            if not lines:
                labels.remove(label)
            for size, readers, *found in (map(float, line.split()) for line in lines):
                key = int(size), int(readers), label
                best[key] = list(map(min, found, best.get(key, found)))
    for (size, readers, label), (taken, cpu) in best.items():
        if label in labels:
            print(f"moved\t{size}\t{readers}\t{label}\t{taken:.9f}\t{cpu:.9f}")


if __name__ == "__main__":
    main()
