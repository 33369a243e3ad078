"""Channels: streams of arrays between processes, over memory that is used again."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import socket
import sys
import threading
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import dlbridge

if sys.platform != "linux":
    pytest.skip("channels are for Linux", allow_module_level=True)

# Too large to travel inline.
SIZE = 100_000


@pytest.fixture
def ends():
    return dlbridge.channel()


def send(channel, value, size=SIZE):
    with channel.loan({"x": (size, "int64")}) as batch:
        dlbridge.fill(batch["x"], value)
        channel.send(batch)


@pytest.mark.parametrize("size", [0, 1, 100, SIZE])
def test_arrays_arrive_as_they_were_sent(ends, size):
    maker, reader = ends
    x, y = np.arange(size), np.arange(6, dtype="float32").reshape(2, 3).T
    maker.send({"x": x, "y": y})
    message = reader.receive()
    assert (list(message), len(message), message.keys()) == (["x", "y"], 2, ["x", "y"])
    assert message.nbytes == x.nbytes + y.nbytes
    np.testing.assert_array_equal(np.from_dlpack(message["x"]), x)
    np.testing.assert_array_equal(np.from_dlpack(message.tensors()["y"]), y)
    with pytest.raises(KeyError, match="z"):
        message["z"]
    copy = np.from_dlpack(message.copy("y"))
    copy[:] = 1
    assert message["x"].readonly


def test_memory_is_used_again_when_the_arrays_are_deleted(ends):
    maker, reader = ends
    addresses = set()
    for value in range(5):
        send(maker, value)
        message = reader.receive()
        array = np.from_dlpack(message["x"])
        addresses.add(array.ctypes.data)
        del message
        assert maker.kept[0] == 1
        assert (array == value).all()
        del array
        assert maker.kept == (0, 0)
    assert len(addresses) == 1


def test_a_loan_with_an_array_is_not_sent(ends):
    maker, reader = ends
    with maker.loan({"x": (SIZE, "uint8")}) as batch:
        array = np.from_dlpack(batch["x"])
        array[:] = 7
        with pytest.raises(BufferError, match="found 1: delete them"):
            maker.send(batch)
        del array
        maker.send(batch)
        with pytest.raises(ValueError, match="sent or returned"):
            maker.send(batch)
    assert (np.from_dlpack(reader.receive()["x"]) == 7).all()
    with maker.loan({"x": (3, "uint8")}) as batch:
        assert batch.keys() == ["x"]
    with pytest.raises(ValueError, match="sent or returned"):
        batch["x"]
    with pytest.raises(ValueError, match="limit of the pool"):
        maker.loan({"x": (1 << 30, "uint8")})
    with pytest.raises(TypeError, match="expected a pair of a shape"):
        maker.loan({"x": 3})


def test_a_write_through_pytorch_stays_in_its_message(ends):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    maker, reader = ends
    for value in range(3):
        send(maker, value)
        x = torch.from_dlpack(reader.receive()["x"])
        assert (x == value).all()
        x.fill_(99)
        del x
        gc.collect()


def test_the_end_and_a_timeout_are_told(ends):
    maker, reader = ends
    assert not reader.wait(0)
    with pytest.raises(TimeoutError, match="found none in the time"):
        reader.receive(timeout=0.01)
    send(maker, 1)
    maker.close()
    assert reader.receive(timeout=5)["x"].shape == (SIZE,)
    with pytest.raises(EOFError, match="closed"):
        reader.receive(timeout=5)


def test_a_loan_waits_for_memory_as_long_as_it_is_told():
    maker, reader = dlbridge.channel(limit=1 << 20)
    send(maker, 1)
    with pytest.raises(TimeoutError, match="larger limit"):
        maker.loan({"x": (SIZE, "int64")}, timeout=0.01)
    reader.receive(timeout=5)  # and dropped
    with maker.loan({"x": (SIZE, "int64")}, timeout=5) as batch:
        assert batch["x"].shape == (SIZE,)


def test_threads_that_receive_from_one_end_keep_their_timeouts(ends):
    maker, reader = ends
    received = []

    def receive():
        while True:
            try:
                received.append(reader.receive(timeout=0.2)["x"].tolist())
            except TimeoutError:
                return

    threads = [threading.Thread(target=receive, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for value in range(500):
        maker.send({"x": np.array(value)})
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(received) == list(range(500))


def test_a_socket_of_the_caller_stays_the_callers():
    with socket.socketpair()[0] as one:
        channel = dlbridge.Channel(one)
        assert channel.fileno() != one.fileno()
        with pytest.raises(ValueError, match="expected an open socket"):
            dlbridge.Channel(closed())


def closed():
    end = socket.socketpair()[0]
    end.close()
    return end


def test_a_signal_ends_waiting(ends):
    maker, reader = ends

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        for wait in (reader.receive, lambda: fill_up(maker)):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(KeyboardInterrupt):
                wait()
    finally:
        signal.signal(signal.SIGUSR1, before)


def fill_up(maker):
    while True:
        send(maker, 1, 4 << 20)


def test_asyncio_awaits_messages(ends):
    maker, reader = ends

    async def both():
        async def make():
            for value in range(20):
                send(maker, value)
                await asyncio.sleep(0)

        task = asyncio.create_task(make())
        sums = [int((await reader.areceive())["x"][:3].tolist()[0]) for _ in range(20)]
        await task
        return sums

    assert asyncio.run(both()) == list(range(20))


def echo(channel):
    """Answers each message with its sum, until the end."""
    try:
        while True:
            message = channel.receive()
            total = np.from_dlpack(message["x"]).sum(keepdims=True)
            del message
            channel.send({"sum": total})
    except EOFError:
        pass


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_has_the_other_end(ends, method):
    maker, reader = ends
    process = multiprocessing.get_context(method).Process(target=echo, args=(reader,))
    process.start()
    for value in range(50):
        send(maker, value)
        assert maker.receive(timeout=60)["sum"].tolist() == [value * SIZE]
    assert maker.kept == (0, 0)
    maker.close()
    process.join(30)
    assert process.exitcode == 0


ends_of_worker = []


def initialise(channel):
    ends_of_worker.append(channel)


def total(_):
    return int(np.from_dlpack(ends_of_worker[0].receive()["x"]).sum())


def test_a_pool_of_processes_has_an_end_from_its_initialiser(ends):
    maker, reader = ends
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initialise, (reader,)) as pool:
        futures = [pool.submit(total, i) for i in range(10)]
        for value in range(10):
            send(maker, value)
        assert [future.result(60) for future in futures] == [i * SIZE for i in range(10)]


def test_a_child_that_is_forked_ends_no_lease_of_its_parent(ends):
    maker, reader = ends
    send(maker, 7)
    message = reader.receive()
    child = os.fork()
    if child == 0:
        del message
        gc.collect()
        failed = False
        try:
            maker.loan({"x": (SIZE, "int64")})
        except ValueError as error:
            failed = "forked" in str(error)
        os._exit(0 if failed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert maker.kept[0] == 1
    assert (np.from_dlpack(message["x"]) == 7).all()


@pytest.mark.parametrize("size", [10, SIZE])
def test_a_message_is_kept_when_the_maker_looks_at_its_end(ends, size):
    maker, reader = ends
    send(maker, 7, size)
    message = reader.receive()
    if size == SIZE:
        with pytest.raises(TimeoutError, match="again, or copy"):
            message.keep(timeout=0)
        assert maker.kept[0] == 1
    sealed = message.keep(timeout=60)
    del message
    send(maker, 8, size)
    assert reader.receive()["x"].tolist()[0] == 8
    array = np.from_dlpack(sealed["x"])
    assert (array == 7).all() and len(array) == size
    assert dlbridge.open_handle(sealed.handle())["x"].tolist()[0] == 7


def test_several_readers_receive_one_message():
    maker, reader = dlbridge.channel()
    others = [dlbridge.channel(share=maker) for _ in range(2)]
    readers = [reader, *(other for _, other in others)]
    for value in range(5):
        with maker.loan({"x": (SIZE, "int64")}) as batch:
            dlbridge.fill(batch["x"], value)
            maker.send(batch, *(other for other, _ in others))
        messages = [one.receive() for one in readers]
        assert all((np.from_dlpack(message["x"]) == value).all() for message in messages)
        assert [one.kept[0] for one in (maker, *(other for other, _ in others))] == [1, 1, 1]
        del messages
    # One that is gone is told of, and the others have the message.
    others[0][1].close()
    with pytest.raises(OSError, match="closed"):
        maker.send({"x": np.arange(SIZE)}, *(other for other, _ in others))
    assert reader.receive()["x"].shape == readers[2].receive()["x"].shape == (SIZE,)


class Collate:
    """Stacks samples in the memory of a channel; each worker of a loader has one."""

    def __init__(self, channels):
        self.channels = channels

    def __call__(self, samples):
        from torch.utils.data import get_worker_info

        worker = get_worker_info().id
        channel = self.channels[worker]
        with channel.loan({"x": ((len(samples), *samples[0].shape), "float32")}) as batch:
            np.stack(samples, out=np.from_dlpack(batch["x"]))
            channel.send(batch)
        return worker


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_workers_of_pytorchs_loader_fill_loans(method):
    data = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    samples = [np.full((100, 100), i, "float32") for i in range(20)]
    makers, readers = zip(*(dlbridge.channel() for _ in range(2)), strict=True)
    workers = {"num_workers": 2, "multiprocessing_context": method}
    loader = data.DataLoader(samples, batch_size=5, collate_fn=Collate(makers), **workers)
    found = []
    for worker in loader:
        message = readers[worker].receive(timeout=60)
        x = np.from_dlpack(message["x"])
        found += x[:, 0, 0].tolist()
        assert x.shape == (5, 100, 100)
    assert found == list(range(20))
