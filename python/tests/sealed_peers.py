"""The other sides of `test_sealed_processes`: functions for workers, and programs that are started.

It imports little, since each worker that is spawned imports it.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

import dlbridge

SIZE = 16 << 20
"""Of the tensor of `maker` and `reader`, in bytes."""


def file_of(sealed):
    """Two processes that find the same number have the same memory."""
    return os.fstat(sealed.fileno()).st_ino


def look(sealed):
    """What a reader sees: the sum of `x`, and which file it is in."""
    array = np.from_dlpack(sealed["x"])
    assert not array.flags.writeable
    return int(array.sum()), file_of(sealed)


def make(size):
    return dlbridge.seal({"x": np.arange(size)}, metadata={"pid": str(os.getpid())})


def look_and_tell(sealed, results):
    results.put(look(sealed))


def look_at_each(tasks, results):
    before = None
    while (sealed := tasks.get()) is not None:
        results.put(look(sealed))
        del sealed
        before = before or descriptors()
    results.put(descriptors() - before)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def process(context):
    sealed, results = make(1000), context.SimpleQueue()
    child = context.Process(target=look_and_tell, args=(sealed, results))
    child.start()
    assert results.get() == look(sealed) == (999 * 500, file_of(sealed))
    child.join()
    assert child.exitcode == 0


def queue(context):
    tasks, results = context.Queue(), context.Queue()
    child = context.Process(target=look_at_each, args=(tasks, results))
    child.start()
    before = None
    for size in range(1, 101):
        sealed = make(size)
        tasks.put(sealed)
        assert results.get(timeout=60) == look(sealed)
        before = before or descriptors()
    tasks.put(None)
    # A thread of multiprocessing closes the last ones.
    assert results.get(timeout=60) < 10, "in the reader"
    assert descriptors() < before + 10
    child.join()
    assert child.exitcode == 0


def pool(context):
    sealed = make(1000)
    with context.Pool(2) as pool:
        assert pool.map(look, [sealed] * 4) == [look(sealed)] * 4
        made = pool.map(make, [10, 100])
        # What a worker made outlives it.
        assert all(x.metadata["pid"] != str(os.getpid()) for x in made)
    assert [look(x)[0] for x in made] == [45, 4950]


def executor(context):
    sealed = make(1000)
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        assert executor.submit(look, sealed).result() == look(sealed)
        made = executor.submit(make, 100).result()
        tensor = made["x"]
        # It is sealed already, so the same file is sent again.
        assert executor.submit(look, made).result() == look(made)
    assert tensor.tolist() == list(range(100))


def take_and_wait(tasks, results):
    taken = [tasks.get() for _ in range(20)]
    results.put(len(taken))
    time.sleep(600)


def killed(context):
    """A reader that is killed with what it received leaves no descriptor in the sender."""
    tasks, results = context.Queue(), context.Queue()
    child = context.Process(target=take_and_wait, args=(tasks, results))
    child.start()
    tasks.put(make(1))
    before = descriptors()
    for size in range(1, 20):
        tasks.put(make(size))
    assert results.get(timeout=60) == 20
    child.kill()
    child.join()
    assert descriptors() < before + 5, descriptors() - before


def loader(context):
    """Workers of PyTorch's loader make batches, which the trainer reads without a copy."""
    from torch import from_dlpack
    from torch.utils.data import DataLoader

    workers = {"num_workers": 1, "multiprocessing_context": context}
    batches = DataLoader(range(1, 5), batch_size=None, collate_fn=make, **workers)
    for size, sealed in enumerate(batches, start=1):
        assert sealed.metadata["pid"] != str(os.getpid())
        assert from_dlpack(sealed["x"]).tolist() == list(range(size))


def forked(context):
    """A child that is forked while tensors are filled has the writable mapping as well."""
    batch = dlbridge.empty_sealed({"x": (3, "int64")})
    # The file is mapped when its tensors are asked for.
    batch.tensors()
    unmapped = dlbridge.empty_sealed({"x": (3, "int64")})
    child = context.Process(target=time.sleep, args=(600,))
    child.start()
    assert unmapped.seal()["x"].tolist() == [0, 0, 0]
    try:
        batch.seal()
    except ValueError as error:
        assert "end the child that was forked" in str(error), error
    else:
        raise AssertionError("it was sealed")
    child.kill()
    child.join()
    assert batch.seal()["x"].tolist() == [0, 0, 0]


def limit():
    """A process that maps one tensor after the other, until the kernel refuses the next one."""
    # At the limit the heap cannot grow either: what Python and Rust need there is freed before.
    blocks = [bytes(1000) for _ in range(100_000)]
    top = bytes(1000)
    del blocks
    sealed, tensors = dlbridge.seal({"x": np.arange(3)}), []
    try:
        while True:
            tensors.append(sealed["x"])
    except OSError as error:
        assert "vm.max_map_count" in str(error), error
        assert "tensors() or private()" in str(error), error
    del tensors[-100:], top
    assert sealed.tensors()["x"].tolist() == [0, 1, 2]


def life(peer, last):
    """Tells of its last step, then waits to be killed."""

    def step(name):
        if name == last:
            peer.send(b".")
            peer.recv(1)
            sys.exit("it was to be killed")

    return step


def maker(number, last):
    with socket.socket(fileno=int(number)) as peer:
        step = life(peer, last)
        batch = dlbridge.empty_sealed({"x": (SIZE, "uint8")})
        step("allocated")
        array = np.from_dlpack(batch.tensors()["x"])
        step("taken")
        array[:] = 7
        step("filled")
        del array
        sealed = batch.seal()
        step("sealed")
        array = np.from_dlpack(sealed["x"])
        assert (array[::4096] == 7).all()
        step("read")
        socket.send_fds(peer, [b" "], [sealed.fileno()])
        step("sent")


def reader(number, last):
    with socket.socket(fileno=int(number)) as peer:
        step = life(peer, last)
        _, (received,), _, _ = socket.recv_fds(peer, 1, 1)
        step("received")
        sealed = dlbridge.open_sealed(received)
        step("opened")
        array = np.from_dlpack(sealed["x"])
        assert (array[::4096] == 7).all()
        step("read")
        tensors = sealed.tensors()
        private = sealed.private()["x"]
        step("private")
        np.from_dlpack(private)[:] = 8
        step("written")
        del sealed, array, tensors
        os.close(received)
        step("closed")


def main(scenario, *arguments):
    lives = {"maker": maker, "reader": reader, "limit": limit}
    if scenario in lives:
        return lives[scenario](*arguments)
    scenarios = [process, queue, pool, executor, killed, loader, forked]
    (method,) = arguments
    {function.__name__: function for function in scenarios}[scenario](get_context(method))


if __name__ == "__main__":
    # Workers find the functions by the name of the module, not of the program.
    import sealed_peers

    sealed_peers.main(*sys.argv[1:])
