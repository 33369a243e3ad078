"""What channels need of Python: an event loop, and the picklers of `multiprocessing`."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any, Protocol

from dlbridge._native import Channel, Message

# How often a task looks again: another thread may have read what it waits for.
TICK = 0.1


class _Sent(Protocol):
    def detach(self) -> int: ...


class _Descriptor:
    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        return self.number


def _send(channel: Channel) -> tuple[Callable[..., Any], tuple[_Sent]]:
    return _receive, (reduction.DupFd(channel.fileno()),)


def _receive(sent: _Sent) -> Channel:
    descriptor = sent.detach()
    try:
        return Channel(_Descriptor(descriptor))
    finally:
        os.close(descriptor)


class _Readers:
    """The tasks of an event loop that wait for one end: a descriptor has one callback in a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.descriptor = -1
        self.futures: set[asyncio.Future[None]] = set()

    def wake(self) -> None:
        for future in self.futures:
            if not future.done():
                future.set_result(None)

    async def wait(self, channel: Channel) -> None:
        """Wait until the socket can be read, or for a tick."""
        future = self.loop.create_future()
        if not self.futures:
            # A copy: the channel's own number is another file's once the channel is closed.
            self.descriptor = os.dup(channel.fileno())
            self.loop.add_reader(self.descriptor, self.wake)
        self.futures.add(future)
        try:
            await asyncio.wait([future], timeout=TICK)
        finally:
            self.futures.remove(future)
            if not self.futures:
                self.loop.remove_reader(self.descriptor)
                os.close(self.descriptor)


_readers: weakref.WeakKeyDictionary[Channel, _Readers] = weakref.WeakKeyDictionary()


async def receive(channel: Channel) -> Message:
    """Waits for the socket in the event loop, and receives once there is a whole message."""
    while True:
        if channel.wait(0):
            try:
                return channel.receive(0)
            except TimeoutError:
                # Another thread was quicker.
                continue
        readers = _readers.get(channel)
        loop = asyncio.get_running_loop()
        if readers is None or readers.loop is not loop:
            readers = _readers[channel] = _Readers(loop)
        await readers.wait(channel)


# Only the picklers of `multiprocessing` call it: in another pickle the descriptor is lost.
reduction.register(Channel, _send)
