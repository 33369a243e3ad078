"""Producers that end the process, or never end: only for child processes."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time

from planted import Array


class Plain(Array):
    """Nothing is wrong with it."""


class CrashesOnCopies(Array):
    def wants_copy(self, copy, versioned):
        if copy and versioned:
            os.kill(os.getpid(), signal.SIGSEGV)
        return copy is True


class HangsOnCopies(Array):
    def wants_copy(self, copy, versioned):
        if copy and versioned:
            time.sleep(600)
        return copy is True


class ExitsOnCopies(Array):
    def wants_copy(self, copy, versioned):
        if copy and versioned:
            os._exit(3)
        return copy is True


class CrashesOnForeignThreads(Array):
    def deleted(self, held):
        if threading.current_thread() is not threading.main_thread():
            ctypes.string_at(0)


def made_of_nothing():
    raise RuntimeError("no memory left")


def crashing_from_dlpack(x):
    """A consumer that crashes on what it does not know."""
    import numpy as np

    if x.__dlpack_device__()[0] == 9:
        os.kill(os.getpid(), signal.SIGBUS)
    return np.from_dlpack(x)
