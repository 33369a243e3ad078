"""What channels need of Python: an event loop, and the picklers of `multiprocessing`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any, Protocol

from dlbridge._native import Channel, Message


class _Sent(Protocol):
    def detach(self) -> Any: ...


class _Descriptor:
    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        return self.number


def _send(channel: Channel) -> tuple[Callable[..., Any], tuple[_Sent, bool]]:
    if sys.platform == "win32":
        import socket
        from multiprocessing.resource_sharer import DupSocket

        own = socket.fromfd(channel.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        return _receive, (DupSocket(own), True)
    return _receive, (reduction.DupFd(channel.fileno()), not channel.shares_memory)


def _receive(sent: _Sent, by_bytes: bool) -> Channel:
    if sys.platform == "win32":
        with sent.detach() as own:
            return Channel(own, by_bytes=by_bytes)
    descriptor = sent.detach()
    try:
        return Channel(_Descriptor(descriptor), by_bytes=by_bytes)
    finally:
        os.close(descriptor)


async def receive(channel: Channel) -> Message:
    """Waits for the socket in the event loop, and receives once there is a whole message."""
    loop = asyncio.get_running_loop()
    while not channel.wait(0):
        readable = loop.create_future()

        def wake(future: asyncio.Future[None] = readable) -> None:
            if not future.done():
                future.set_result(None)

        try:
            loop.add_reader(channel.fileno(), wake)
        except NotImplementedError:
            # The event loop of Windows waits for no socket of another library.
            await asyncio.to_thread(channel.wait, 0.1)
            continue
        try:
            await readable
        finally:
            loop.remove_reader(channel.fileno())
    return channel.receive()


# Only the picklers of `multiprocessing` call it: in another pickle the descriptor is lost.
reduction.register(Channel, _send)
