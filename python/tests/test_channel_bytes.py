"""Channels that send bytes: over TCP, and over any socket that is asked to."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time

import numpy as np
import pytest

import dlbridge

# More than the buffers of a socket hold.
LARGE = 4 << 20


def tcp():
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


def tcp_ends(**options):
    one, other = tcp()
    with one, other:
        return dlbridge.Channel(one, **options), dlbridge.Channel(other, **options)


def local_ends():
    return dlbridge.channel(by_bytes=True)


@pytest.fixture(params=[tcp_ends, local_ends])
def ends(request):
    return request.param()


def send(channel, value, size=100):
    with channel.loan({"x": (size, "int64")}) as batch:
        dlbridge.fill(batch["x"], value)
        channel.send(batch)


@pytest.mark.parametrize("size", [0, 1, 100, 100_000])
def test_arrays_arrive_as_they_were_sent(ends, size):
    maker, reader = ends
    assert not maker.shares_memory
    x, y = np.arange(size), np.arange(6, dtype="float32").reshape(2, 3).T
    thread = threading.Thread(target=maker.send, args=({"x": x, "y": y},))
    thread.start()
    message = reader.receive(timeout=60)
    thread.join()
    assert (list(message), message.nbytes) == (["x", "y"], x.nbytes + y.nbytes)
    np.testing.assert_array_equal(np.from_dlpack(message["x"]), x)
    np.testing.assert_array_equal(np.from_dlpack(message.tensors()["y"]), y)
    copy = np.from_dlpack(message.copy("y"))
    copy[:] = 1
    assert message["x"].readonly and maker.kept == (0, 0)
    assert np.from_dlpack(message["y"])[0, 0] == 0


def test_a_loan_with_an_array_is_not_sent(ends):
    maker, reader = ends
    with maker.loan({"x": (3, "uint8"), "y": (3, "uint8")}) as batch:
        array = np.from_dlpack(batch["x"])
        array[:] = 7
        with pytest.raises(BufferError, match="found 1: delete them"):
            maker.send(batch)
        del array
        maker.send(batch)
    assert reader.receive()["x"].tolist() == [7] * 3


def test_the_limit_is_that_of_a_message():
    maker, reader = tcp_ends(limit=1000)
    with pytest.raises(ValueError, match="at most 1000 bytes"):
        maker.loan({"x": (1001, "uint8")})
    send(dlbridge.Channel(maker), 1, 1001)
    with pytest.raises(OSError, match="at most 1000 are allowed"):
        reader.receive()


def test_the_end_and_a_timeout_are_told(ends):
    maker, reader = ends
    with pytest.raises(TimeoutError, match="found none in the time"):
        reader.receive(timeout=0.01)
    send(maker, 1)
    maker.close()
    assert reader.receive(timeout=60)["x"].shape == (100,)
    with pytest.raises(EOFError, match="closed"):
        reader.receive(timeout=60)
    with pytest.raises(OSError, match="the other end is closed"):
        for _ in range(100):
            send(reader, 1, LARGE)


def test_a_socket_that_is_not_connected_is_refused():
    with socket.socket() as one, pytest.raises(OSError, match="not connected"):
        dlbridge.Channel(one)
    with open(os.devnull) as file, pytest.raises(OSError):
        dlbridge.Channel(file)


def test_a_peer_of_another_protocol_is_refused():
    attacker, other = tcp()
    with attacker, other:
        reader = dlbridge.Channel(other)
        attacker.sendall(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")
        with pytest.raises(OSError, match="expected a frame of dlbridge"):
            reader.receive(timeout=60)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, no channel shares memory")
def test_ends_of_two_kinds_tell_each_other():
    one, other = socket.socketpair()
    maker, reader = dlbridge.Channel(one), dlbridge.Channel(other, by_bytes=True)
    assert maker.shares_memory and not reader.shares_memory
    maker.send({"x": np.arange(3)})
    with pytest.raises(OSError, match="an end that shares memory, while this one sends bytes"):
        reader.receive()
    maker, reader = tcp_ends()
    local, local_reader = dlbridge.channel()
    with local.loan({"x": (LARGE, "uint8")}) as batch:
        dlbridge.fill(batch["x"], 7)
        thread = threading.Thread(target=local.send, args=(batch, maker))
        thread.start()
        messages = [local_reader.receive(), reader.receive()]
        thread.join()
    assert all(np.from_dlpack(message["x"])[-1] == 7 for message in messages)


@pytest.mark.skipif(sys.platform != "linux", reason="sealed files are for Linux")
def test_a_message_is_kept_as_a_copy(ends):
    maker, reader = ends
    send(maker, 7)
    sealed = reader.receive().keep(timeout=0)
    assert dlbridge.open_handle(sealed.handle())["x"].tolist() == [7] * 100


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_a_signal_ends_waiting(ends):
    maker, reader = ends

    def interrupt(*_):
        raise KeyboardInterrupt

    def fill_up():
        while True:
            send(maker, 1, LARGE)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        for wait in (reader.receive, fill_up):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(KeyboardInterrupt):
                wait()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_socket_that_is_full_makes_the_sender_wait(ends):
    maker, reader = ends
    sent = []

    def make():
        for value in range(3):
            send(maker, value, LARGE)
            sent.append(value)

    thread = threading.Thread(target=make)
    thread.start()
    time.sleep(0.1)
    # The sockets are full.
    assert len(sent) < 3
    assert [int(reader.receive()["x"][-1].tolist()) for _ in range(3)] == [0, 1, 2]
    thread.join()


def test_asyncio_awaits_messages(ends):
    maker, reader = ends

    async def both():
        async def make():
            for value in range(20):
                await asyncio.to_thread(send, maker, value, 10_000)

        task = asyncio.create_task(make())
        sums = [(await reader.areceive())["x"][0].tolist() for _ in range(20)]
        await task
        return sums

    assert asyncio.run(both()) == list(range(20))


def test_asyncio_serves_several_clients():
    async def answer(channel):
        try:
            while True:
                message = await channel.areceive()
                channel.send({"sum": np.from_dlpack(message["x"]).sum(keepdims=True)})
        except EOFError:
            pass

    async def all_of_them():
        pairs = [tcp_ends() for _ in range(5)]
        servers = [asyncio.create_task(answer(server)) for _, server in pairs]
        for value in range(10):
            for client, _ in pairs:
                send(client, value)
            for client, _ in pairs:
                assert (await client.areceive())["sum"].tolist() == [value * 100]
        for client, _ in pairs:
            client.close()
        await asyncio.gather(*servers)

    asyncio.run(asyncio.wait_for(all_of_them(), 60))


def echo(channel):
    """Answers each message with its sum, until the end."""
    assert not channel.shares_memory
    try:
        while True:
            channel.send({"sum": np.from_dlpack(channel.receive()["x"]).sum(keepdims=True)})
    except EOFError:
        pass


def connect(address):
    with socket.create_connection(address) as own:
        channel = dlbridge.Channel(own)
    echo(channel)


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_process_has_the_other_end(ends, method):
    maker, reader = ends
    process = multiprocessing.get_context(method).Process(target=echo, args=(reader,))
    process.start()
    for value in range(20):
        send(maker, value, 100_000)
        assert maker.receive(timeout=60)["sum"].tolist() == [value * 100_000]
    maker.close()
    process.join(60)
    assert process.exitcode == 0


def test_a_process_connects_by_a_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        process = multiprocessing.get_context("spawn").Process(target=connect, args=(address,))
        process.start()
        with server.accept()[0] as own:
            maker = dlbridge.Channel(own)
    for value in range(20):
        send(maker, value, 100_000)
        assert maker.receive(timeout=60)["sum"].tolist() == [value * 100_000]
    # It is killed amid a message.
    with pytest.raises((EOFError, OSError)):
        process.kill()
        for value in range(100):
            send(maker, value, LARGE)
    process.join(60)
