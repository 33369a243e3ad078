"""A data loader: workers fill batches, and a trainer reads them in PyTorch without a copy.

    python loader.py --batches 40 --mebibytes 16

prints how fast the trainer gets its batches, beside four other ways. Every batch is checked.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pickle
import time
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

import dlbridge
import numpy as np
import torch
import torch.multiprocessing


def fill(images: np.ndarray, labels: np.ndarray, number: int) -> None:
    """What a real loader reads from disk and decodes."""
    images[:] = number % 251
    labels[:] = number


def sealed(number: int, shape: tuple[int, ...]) -> dlbridge.SealedTensors:
    batch = dlbridge.empty_sealed(
        {"images": (shape, "uint8"), "labels": (shape[0], "int64")}
    )
    tensors = batch.tensors()
    fill(np.from_dlpack(tensors["images"]), np.from_dlpack(tensors["labels"]), number)
    del tensors
    return batch.seal()


def of_sealed(batch: dlbridge.SealedTensors) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_dlpack(batch["images"]), torch.from_dlpack(batch["labels"])


def arrays(number: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    images, labels = np.empty(shape, "uint8"), np.empty(shape[0], "int64")
    fill(images, labels, number)
    return images, labels


def of_arrays(
    batch: tuple[np.ndarray, np.ndarray],
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(batch[0]), torch.from_numpy(batch[1])


def pickled(number: int, shape: tuple[int, ...]) -> bytes:
    return pickle.dumps(arrays(number, shape), protocol=5)


def of_pickled(batch: bytes) -> tuple[torch.Tensor, torch.Tensor]:
    return of_arrays(pickle.loads(batch))


def named(
    number: int, shape: tuple[int, ...]
) -> tuple[str, tuple[int, ...], np.ndarray]:
    memory = SharedMemory(create=True, size=int(np.prod(shape)))
    images, labels = np.ndarray(shape, "uint8", memory.buf), np.empty(shape[0], "int64")
    fill(images, labels, number)
    del images
    memory.close()
    return memory.name, shape, labels


def of_named(
    batch: tuple[str, tuple[int, ...], np.ndarray],
) -> tuple[torch.Tensor, torch.Tensor]:
    # The reader copies, so that it can remove the name: a process that is killed leaves it behind.
    memory = SharedMemory(batch[0])
    images = np.ndarray(batch[1], "uint8", memory.buf).copy()
    memory.close()
    memory.unlink()
    return of_arrays((images, batch[2]))


def of_torch(number: int, shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.empty(shape, dtype=torch.uint8).share_memory_()
    labels = torch.empty(shape[0], dtype=torch.int64).share_memory_()
    fill(images.numpy(), labels.numpy(), number)
    return images, labels


WAYS = {
    "dlbridge.empty_sealed": (sealed, of_sealed),
    "torch.multiprocessing": (of_torch, tuple),
    "multiprocessing.shared_memory, one copy": (named, of_named),
    "multiprocessing.Queue of arrays": (arrays, of_arrays),
    "pickles": (pickled, of_pickled),
}


def work(way, shape, batches, ready, done) -> None:
    make, _ = WAYS[way]
    while (number := batches.get()) is not None:
        ready.put((number, make(number, shape)))
    # A descriptor is the sender's until it is received.
    done.wait()


def seconds(
    way: str, start: str, shape: tuple[int, ...], count: int, workers: int
) -> float:
    """How long the trainer takes for its batches, from the second one on."""
    context = torch.multiprocessing.get_context(start)
    batches, ready, done = context.Queue(), context.Queue(maxsize=4), context.Event()
    arguments = (way, shape, batches, ready, done)
    processes = [context.Process(target=work, args=arguments) for _ in range(workers)]
    for process in processes:
        process.start()
    for number in range(count):
        batches.put(number)
    began = None
    for _ in range(count):
        number, batch = ready.get()
        images, labels = WAYS[way][1](batch)
        # The training step.
        assert images.shape == shape and int(labels[0]) == number
        assert int(images[-1, -1]) == number % 251
        began = began or time.perf_counter()
    taken = time.perf_counter() - (began or 0)
    done.set()
    for _ in processes:
        batches.put(None)
    for process in processes:
        process.join()
        assert process.exitcode == 0, f"a worker ended with {process.exitcode}"
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--mebibytes", type=int, default=16, help="size of a batch")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--start", choices=multiprocessing.get_all_start_methods(), nargs="*"
    )
    parser.add_argument("--ways", choices=WAYS, nargs="*", default=list(WAYS))
    options = parser.parse_args()
    # One process that tracks the names of shared memory, for all workers.
    resource_tracker.ensure_running()
    shape = (options.mebibytes, 1 << 20)
    print(
        f"{options.batches} batches of {options.mebibytes} MiB, {options.workers} workers\n"
    )
    print("| way | start | MiB/s |\n| --- | --- | ---: |")
    for start in options.start or ["fork", "spawn"]:
        for way in options.ways:
            taken = seconds(way, start, shape, options.batches, options.workers)
            speed = (options.batches - 1) * options.mebibytes / taken
            print(f"| {way} | {start} | {speed:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
