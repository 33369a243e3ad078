"""Sends sealed tensors to other processes of `multiprocessing`, by their descriptors.

Imported when the first `SealedTensors` is made: importing `multiprocessing.reduction` takes time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any, Protocol

from dlbridge._native import SealedTensors, open_sealed


class _Sent(Protocol):
    def detach(self) -> int: ...


def _send(sealed: SealedTensors) -> tuple[Callable[..., Any], tuple[_Sent]]:
    return _receive, (reduction.DupFd(sealed.fileno()),)


def _receive(sent: _Sent) -> SealedTensors:
    descriptor = sent.detach()
    try:
        return open_sealed(descriptor)
    finally:
        os.close(descriptor)


# Only the picklers of `multiprocessing` call it: in another pickle the descriptor is lost.
reduction.register(SealedTensors, _send)
