"""The ways of `processes.py` between two processes, each of which sends arrays of bytes."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import socket
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

import dlbridge

# Batches that are made before the reader is done with them.
AHEAD = 4

context = multiprocessing.get_context("fork")
Array = np.ndarray[Any, np.dtype[np.uint8]]


class Way:
    """One way between two processes: a maker makes batches and sends them to a reader."""

    package = "dlbridge"
    # Whether several readers can have one batch.
    has_readers = True

    def __init__(self, size: int) -> None:
        self.size = size

    @classmethod
    def several(cls, size: int, readers: int) -> list[Any]:
        """One for each reader, of which the first makes the batches."""
        return [cls(size) for _ in range(readers)]

    def send_all(self, others: list[Any], batch: Any) -> None:
        for way in (self, *others):
            way.send(batch)

    def start(self, *, is_maker: bool) -> None:
        """Called in each process before the first batch."""

    def make(self, number: int) -> Any:
        array = np.empty(self.size, "uint8")
        fill(array, number)
        return array

    def send(self, batch: Any) -> None:
        raise NotImplementedError

    def receive(self) -> Array:
        raise NotImplementedError

    def done(self) -> None:
        """Called by the reader, which has dropped the array."""

    def remove(self, batch: Any) -> None:
        """Removes what a batch leaves behind."""


def fill(array: Array, number: int) -> None:
    array[:] = number % 251


class Sealed(Way):
    """The descriptor travels over a socket."""

    label = "dlbridge"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.here, self.there = socket.socketpair()

    def make(self, number: int) -> Any:
        batch = dlbridge.empty_sealed({"x": (self.size, "uint8")})
        fill(np.from_dlpack(batch.tensors()["x"]), number)
        return batch.seal()

    def send(self, batch: Any) -> None:
        socket.send_fds(self.there, [b"."], [batch.fileno()])

    def receive(self) -> Array:
        _, (number,), _, _ = socket.recv_fds(self.here, 1, 1)
        array = np.from_dlpack(dlbridge.open_sealed(number)["x"])
        os.close(number)
        return array


class Streamed(Way):
    """Memory that is loaned, and used again by later batches."""

    label = "dlbridge by a Channel"

    def __init__(self, size: int, share: dlbridge.Channel | None = None) -> None:
        super().__init__(size)
        self.there, self.here = dlbridge.channel(share=share)

    @classmethod
    def several(cls, size: int, readers: int) -> list[Any]:
        first = cls(size)
        return [first, *(cls(size, first.there) for _ in range(1, readers))]

    def send_all(self, others: list[Any], batch: Any) -> None:
        self.there.send(batch, *(way.there for way in others))

    def make(self, number: int) -> Any:
        loan = self.there.loan({"x": (self.size, "uint8")})
        fill(np.from_dlpack(loan["x"]), number)
        return loan

    def send(self, batch: Any) -> None:
        self.there.send(batch)

    def receive(self) -> Array:
        return np.from_dlpack(self.here.receive()["x"])


class Bytes(Way):
    """Plain bytes, received into the same array."""

    label = "bytes through a socket"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.here, self.there = socket.socketpair()
        self.array = np.empty(size, "uint8")

    def send(self, batch: Any) -> None:
        self.there.sendall(batch)

    def receive(self) -> Array:
        view = memoryview(self.array)
        while view:
            view = view[self.here.recv_into(view) :]
        return self.array


class Queued(Way):
    label = "pickles by a Queue"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.queue = self.context().Queue()

    def context(self) -> Any:
        return context

    def send(self, batch: Any) -> None:
        self.queue.put(batch)

    def receive(self) -> Array:
        return self.queue.get()


class QueuedSealed(Queued):
    label = "dlbridge by a Queue"
    make = Sealed.make

    def receive(self) -> Array:
        return np.from_dlpack(self.queue.get()["x"])


class Piped(Way):
    label = "pickles by a Pipe"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.here, self.there = context.Pipe(duplex=False)

    def send(self, batch: Any) -> None:
        self.there.send(batch)

    def receive(self) -> Array:
        return self.here.recv()


class Named(Queued):
    """Without a copy in the reader, which removes the name."""

    label = "multiprocessing.shared_memory"
    has_readers = False  # the one reader removes the name

    def make(self, number: int) -> Any:
        memory = SharedMemory(create=True, size=self.size)
        fill(np.ndarray(self.size, "uint8", memory.buf), number)
        memory.close()
        return memory.name

    def receive(self) -> Array:
        self.memory = SharedMemory(self.queue.get())
        return np.ndarray(self.size, "uint8", self.memory.buf)

    def done(self) -> None:
        self.memory.close()
        self.memory.unlink()

    def remove(self, batch: Any) -> None:
        SharedMemory(batch).unlink()


class ByHand(Queued):
    label = "a file in /dev/shm by hand"
    has_readers = False

    def make(self, number: int) -> Any:
        path = f"/dev/shm/dlbridge-bench-{os.getpid()}-{number}"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.ftruncate(file, self.size)
        fill(np.frombuffer(mmap.mmap(file, self.size), "uint8"), number)
        os.close(file)
        return path

    def receive(self) -> Array:
        path = self.queue.get()
        file = os.open(path, os.O_RDONLY)
        memory = mmap.mmap(file, self.size, prot=mmap.PROT_READ)
        os.close(file)
        os.unlink(path)
        return np.frombuffer(memory, "uint8")


class Torch(Queued):
    label = "torch.multiprocessing"

    package = "torch"

    def context(self) -> Any:
        from torch.multiprocessing import get_context

        return get_context("fork")

    def make(self, number: int) -> Any:
        import torch

        tensor = torch.empty(self.size, dtype=torch.uint8).share_memory_()
        fill(tensor.numpy(), number)
        return tensor

    def receive(self) -> Array:
        return self.queue.get().numpy()


class Iceoryx(Way):
    """Memory that is allocated once and used again by later batches."""

    label = "iceoryx2, which uses memory again"
    package = "iceoryx2"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.ready = context.Semaphore(0)
        self.service = f"dlbridge-{os.getpid()}-{size}-{id(self)}"

    @classmethod
    def several(cls, size: int, readers: int) -> list[Any]:
        ways = super().several(size, readers)
        for way in ways:
            way.service = ways[0].service
        return ways

    def send_all(self, others: list[Any], batch: Any) -> None:
        batch.send()
        for way in (self, *others):
            way.ready.release()

    def start(self, *, is_maker: bool) -> None:
        import iceoryx2

        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
        self.node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
        service = self.node.service_builder(iceoryx2.ServiceName.new(self.service))
        service = service.publish_subscribe(iceoryx2.Slice[ctypes.c_uint8])
        service = service.subscriber_max_buffer_size(2 * AHEAD)
        service = service.subscriber_max_borrowed_samples(2 * AHEAD).open_or_create()
        if is_maker:
            self.port = service.publisher_builder().initial_max_slice_len(self.size).create()
        else:
            self.port = service.subscriber_builder().create()

    def make(self, number: int) -> Any:
        sample = self.port.loan_slice_uninit(self.size)
        fill(np.frombuffer(sample.payload().as_memory_view(), "uint8"), number)
        return sample.assume_init()

    def send(self, batch: Any) -> None:
        batch.send()
        self.ready.release()

    def receive(self) -> Array:
        self.ready.acquire()
        self.sample = self.port.receive()
        return np.frombuffer(self.sample.payload().as_memory_view(), "uint8")

    def done(self) -> None:
        self.sample.delete()


WAYS: dict[str, type[Any]] = {
    kind.label: kind
    for kind in (
        Sealed,
        Streamed,
        QueuedSealed,
        Bytes,
        Torch,
        Named,
        ByHand,
        Iceoryx,
        Queued,
        Piped,
    )
}
