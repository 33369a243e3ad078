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
        batch["x"].numpy()[:] = value
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


def answer(channel):
    """Runs a model over each batch, until the end of the stream."""
    for batch in channel:
        x = np.from_dlpack(batch["x"])  # the memory of the server, read-only
        channel.send({"y": x.sum(axis=1)}, metadata=batch.metadata)
        del x, batch  # the memory goes back to the server


def ask(channel, requests):
    """The answers to requests, by their names."""
    names, rows = zip(*requests.items(), strict=True)
    stacked = {"x": ((len(rows), *rows[0].shape), "float32")}
    with channel.loan(stacked, timeout=60) as batch:
        np.stack(rows, out=np.from_dlpack(batch["x"]))
        channel.send(batch, timeout=60, metadata={"names": ",".join(names)})
    answers = channel.receive(timeout=60)
    assert answers.metadata["names"].split(",") == list(names)
    return dict(zip(names, np.from_dlpack(answers.copy("y")), strict=True))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_has_the_other_end(ends, method):
    maker, reader = ends
    process = multiprocessing.get_context(method).Process(target=answer, args=(reader,))
    process.start()
    reader.close()  # the copy of this process: the end of a killed worker is seen
    for value in range(50):
        found = ask(maker, {"a": np.full(SIZE, value, "float32"), "b": np.zeros(SIZE, "float32")})
        assert found == {"a": value * SIZE, "b": 0}
    if method == "forkserver":
        process.kill()
        with pytest.raises(EOFError):
            maker.receive(timeout=60)
    maker.close()
    process.join(30)
    assert process.exitcode == (-9 if method == "forkserver" else 0)


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
def test_a_message_is_sealed_by_a_copy(ends, size):
    maker, reader = ends
    send(maker, 7, size)
    message = reader.receive()
    sealed = dlbridge.seal(message.tensors(), metadata=message.metadata)
    del message
    assert maker.kept == (0, 0)
    send(maker, 8, size)
    array = np.from_dlpack(sealed["x"])
    assert (array == 7).all() and len(array) == size
    assert dlbridge.open_handle(sealed.handle())["x"].tolist()[0] == 7


@pytest.mark.parametrize("size", [1, SIZE])
def test_texts_travel_beside_the_tensors(ends, size):
    maker, reader = ends
    for metadata in [None, {}, {"id": "7", "": "ä"}]:
        maker.send({"x": np.arange(size)}, metadata=metadata)
        assert reader.receive().metadata == (metadata or {})
    with maker.loan({}) as batch:
        maker.send(batch, metadata={"id": "8"})
    assert reader.receive().metadata["id"] == "8"
    with pytest.raises(TypeError):
        maker.send({}, metadata={"id": 8})
    with pytest.raises(ValueError, match="metadata of at most"):
        maker.send({}, metadata={"id": "x" * 200_000})


def test_an_end_is_an_iterator_over_its_messages(ends):
    maker, reader = ends
    for value in range(5):
        maker.send({"x": np.array(value)})
    maker.close()
    assert [message["x"].tolist() for message in reader] == list(range(5))
    assert list(reader) == []


def test_sending_to_an_end_that_does_not_read_has_a_timeout(ends):
    maker, reader = ends
    small, sent = np.arange(1000), 0
    with pytest.raises(TimeoutError, match="took nothing in the time"):
        for _ in range(1000):
            maker.send({"x": small}, timeout=0.05)
            sent += 1
    assert sent > 1
    # Nothing of the last message was sent.
    for _ in range(sent):
        assert reader.receive(timeout=5)["x"].shape == (1000,)
    assert not reader.wait(0)
    maker.send({"x": small}, timeout=0)
    assert reader.receive(timeout=5)["x"].shape == (1000,)
    with pytest.raises(ValueError, match="timeout"):
        maker.send({"x": small}, timeout=-1)


def test_a_reader_that_keeps_its_quota_is_told_of_alone():
    maker, reader = dlbridge.channel(quota=1 << 20)
    quick, quick_reader = dlbridge.channel(share=maker)
    message = {"x": np.arange(SIZE)}
    maker.send(message, quick)
    kept = reader.receive()
    del kept, message["x"]
    message["x"] = np.arange(SIZE)
    maker.send(message, quick)
    with pytest.raises(OSError, match="keeps at most 1048576 bytes"):
        maker.send(message, quick)
    assert sum(1 for _ in range(3) if quick_reader.receive(timeout=5)) == 3


def test_several_tasks_await_messages_of_one_end(ends):
    maker, reader = ends

    async def all_of_them():
        async def take():
            return [(await reader.areceive())["x"].tolist() for _ in range(5)]

        tasks = [asyncio.create_task(take()) for _ in range(4)]
        for value in range(20):
            maker.send({"x": np.array(value)})
            await asyncio.sleep(0.001)
        found = await asyncio.wait_for(asyncio.gather(*tasks), 60)
        # One that is cancelled takes no message.
        waiting = [asyncio.create_task(reader.areceive()) for _ in range(2)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        maker.send({"x": np.array(20)})
        last = await asyncio.wait_for(waiting[1], 60)
        return sorted(number for numbers in found for number in numbers), last["x"].tolist()

    assert asyncio.run(all_of_them()) == (list(range(20)), 20)
    # In the next loop as well.
    maker.send({"x": np.array(1)})
    assert asyncio.run(one_of(reader)) == 1


async def one_of(reader):
    return (await reader.areceive())["x"].tolist()


def test_an_end_knows_that_it_was_forked(ends):
    maker, reader = ends
    maker.send({"x": np.array(1)})
    child = os.fork()
    if child == 0:
        # The end that the parent used is refused, the other one is this process's from here on.
        failed = False
        try:
            maker.send({"x": np.array(2)}, timeout=5)
        except ValueError as error:
            failed = "forked" in str(error)
        maker.close()
        received = reader.receive(timeout=5)["x"].tolist() == 1
        os._exit(0 if failed and received else 1)
    reader.close()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(OSError, match="closed"):
        for _ in range(1000):
            maker.send({"x": np.array(3)}, timeout=5)


@pytest.mark.parametrize("how", ["close", "with", "kill"])
def test_the_end_comes_when_the_other_process_closes_its_end_or_ends(ends, how):
    maker, reader = ends
    context = multiprocessing.get_context("fork")
    process = context.Process(target=finish, args=(maker, how))
    process.start()
    assert reader.receive(timeout=60)["x"].tolist() == 1
    if how == "kill":
        # A copy of the other end keeps the stream open, until it is closed.
        process.kill()
        process.join()
        assert not reader.wait(0.2)
        maker.close()
    with pytest.raises(EOFError):
        reader.receive(timeout=60)
    process.kill()


def finish(channel, how):
    channel.send({"x": np.array(1)})
    if how == "close":
        channel.close()
    elif how == "with":
        with channel:
            pass
    signal.pause()


def test_an_end_that_is_closed_is_told_of(ends):
    maker, reader = ends
    maker.close()
    maker.close()
    with pytest.raises(ValueError, match="closed here"):
        maker.send({"x": np.array(1)})
    with pytest.raises(EOFError):
        reader.receive(timeout=5)


def test_a_socket_of_another_kind_is_refused():
    with socket.socket() as tcp, pytest.raises(ValueError, match="expected a Unix socket"):
        dlbridge.Channel(tcp)


def test_several_readers_receive_one_message():
    maker, reader = dlbridge.channel()
    others = [dlbridge.channel(share=maker) for _ in range(2)]
    readers = [reader, *(other for _, other in others)]
    for value in range(5):
        with maker.loan({"x": (SIZE, "int64")}) as batch:
            batch["x"].numpy()[:] = value
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
