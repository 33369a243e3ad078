"""Messages of channels that wait: for memory, for room in the socket, or for an open end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

import dlbridge

if sys.platform != "linux":
    pytest.skip("channels are for Linux", allow_module_level=True)


def test_a_message_that_the_socket_took_in_part_is_sent_whole():
    maker, reader = dlbridge.channel()
    found = []

    def read():
        while True:
            try:
                found.append(len(reader.receive(timeout=60).metadata["key"]))
            except EOFError:
                return

    thread = threading.Timer(0.3, read)
    thread.start()
    for _ in range(20):
        maker.send({"x": np.zeros(1)}, metadata={"key": "a" * 120_000})
    maker.close()
    thread.join()
    assert found == 20 * [120_000]


def test_a_message_of_another_channels_memory_is_refused():
    maker, _reader = dlbridge.channel()
    with (
        maker.loan({"x": (100_000, "int64")}) as batch,
        pytest.raises(ValueError, match="of another"),
    ):
        dlbridge.channel()[0].send(batch)


# Too large to travel inline.
SIZE = 100_000


def fill(maker):
    """Sends until the socket takes no more; how many messages it took."""
    for count in range(10_000):
        try:
            maker.send({"x": np.zeros(1000)}, timeout=0)
        except TimeoutError:
            return count
    raise AssertionError("a socket without end")


@pytest.mark.parametrize("size", [3, SIZE])
def test_a_loan_that_was_not_sent_can_be_sent_again(size):
    maker, reader = dlbridge.channel()
    count = fill(maker)
    with maker.loan({"x": (size, "int64")}) as batch:
        batch["x"].numpy()[:] = 7
        with pytest.raises(ValueError, match="metadata of at most"):
            maker.send(batch, metadata={"id": "x" * 200_000})
        with pytest.raises(TimeoutError, match="send it again"):
            maker.send(batch, timeout=0.01, metadata={"id": "1"})
        with pytest.raises(ValueError, match="is being sent"):
            batch["x"]
        for _ in range(count):
            reader.receive(timeout=5)
        maker.send(batch, timeout=5)
        with pytest.raises(ValueError, match="sent or returned"):
            maker.send(batch)
    message = reader.receive(timeout=5)
    assert (np.from_dlpack(message["x"]) == 7).all() and message.metadata == {"id": "1"}


@pytest.mark.parametrize("size", [3, SIZE])
def test_a_loan_is_sent_again_to_the_ends_that_did_not_take_it(size):
    maker, reader = dlbridge.channel()
    slow, slow_reader = dlbridge.channel(share=maker)
    closed = dlbridge.channel(share=maker)[0]
    closed.close()
    count = fill(slow)
    with maker.loan({"x": (size, "int64")}) as batch:
        batch["x"].numpy()[:] = 7
        with pytest.raises(ValueError, match="closed here"):
            maker.send(batch, slow, closed)
        with pytest.raises(TimeoutError):
            maker.send(batch, slow, timeout=0.01)
        for _ in range(count):
            slow_reader.receive(timeout=5)
        maker.send(batch, slow, timeout=5, metadata={"id": "2"})
    for end in (reader, slow_reader):
        assert (np.from_dlpack(end.receive(timeout=5)["x"]) == 7).all()
        assert not end.wait(0)


def test_memory_of_own_loans_is_named_as_such():
    maker, reader = dlbridge.channel(limit=1 << 20)
    shape = {"x": (SIZE, "int64")}
    batch = maker.loan(shape)
    with pytest.raises(TimeoutError, match="found 0 messages that other ends have and 1 that this"):
        maker.loan(shape, timeout=0)
    maker.send(batch)
    with pytest.raises(TimeoutError, match="found 1 messages that other ends have and 0 that this"):
        maker.loan(shape, timeout=0)
    reader.receive()
    maker.loan(shape, timeout=5)


def test_a_thread_that_waits_for_its_own_loan_alone_is_told_of_it():
    program = f"""
import dlbridge, numpy as np
maker, reader = dlbridge.channel(limit=1 << 20)
batch = maker.loan({{"x": ({SIZE}, "int64")}})
for call in (maker.loan, maker.send):
    try:
        call({{"x": ({SIZE}, "int64")}} if call == maker.loan else {{"x": np.arange({SIZE})}})
    except BufferError as error:
        assert "1 that this process has loaned" in str(error), error
    else:
        raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)


def test_another_thread_may_send_the_loan_that_holds_all_memory():
    maker, reader = dlbridge.channel(limit=1 << 20)
    batch = maker.loan({"x": (SIZE, "int64")})

    def send():
        maker.send(batch)
        reader.receive()

    thread = threading.Timer(0.2, send)
    thread.start()
    with maker.loan({"x": (SIZE, "int64")}) as more:
        assert more.keys() == ["x"]
    thread.join()


def test_a_copy_is_made_without_the_gil():
    maker, reader = dlbridge.channel()
    maker.send({"x": np.zeros(1 << 20)})
    message = reader.receive()

    def runs_beside():
        go, found = threading.Event(), []
        thread = threading.Thread(target=lambda: go.wait() and found.append(1))
        thread.start()
        go.set()
        message.copy("x")
        ran = bool(found)
        thread.join()
        return ran

    before = sys.getswitchinterval()
    # Another thread has the GIL only while this one gives it up.
    sys.setswitchinterval(1000)
    try:
        assert any(runs_beside() for _ in range(1000))
    finally:
        sys.setswitchinterval(before)


def test_closing_an_end_that_a_task_awaits_takes_no_callback_of_others():
    async def program():
        maker, reader = dlbridge.channel()
        loop = asyncio.get_running_loop()
        number = reader.fileno()
        task = asyncio.create_task(reader.areceive())
        await asyncio.sleep(0.01)
        reader.close()
        with contextlib.ExitStack() as stack:
            # The number of the descriptor is free, and the next socket has it.
            while True:
                here, there = map(stack.enter_context, socket.socketpair())
                if number in (here.fileno(), there.fileno()):
                    break
            mine, other = (here, there) if here.fileno() == number else (there, here)
            called = loop.create_future()
            loop.add_reader(mine, lambda: called.done() or called.set_result(None))
            with pytest.raises(ValueError, match="closed here"):
                await asyncio.wait_for(task, 60)
            other.send(b".")
            await asyncio.wait_for(called, 60)
            loop.remove_reader(mine)
        maker.close()

    asyncio.run(program())
