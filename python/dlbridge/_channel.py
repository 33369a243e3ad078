"""What channels need of Python: an event loop, and the picklers of `multiprocessing`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any, Protocol

from dlbridge._native import Channel, Message


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


async def receive(channel: Channel) -> Message:
    """Waits for the socket in the event loop, and receives once there is a whole message."""
    loop = asyncio.get_running_loop()
    while not channel.wait(0):
        readable = loop.create_future()

        def wake(future: asyncio.Future[None] = readable) -> None:
            if not future.done():
                future.set_result(None)

        loop.add_reader(channel.fileno(), wake)
        try:
            await readable
        finally:
            loop.remove_reader(channel.fileno())
    return channel.receive()


# Only the picklers of `multiprocessing` call it: in another pickle the descriptor is lost.
reduction.register(Channel, _send)
