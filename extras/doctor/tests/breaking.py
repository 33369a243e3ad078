"""Producers that end the process, or never end, and a consumer with a fault that its program shows:
only for child processes."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import threading
import time

from planted import Array, Consumer


class Plain:
    """Nothing is wrong with it: its capsules are NumPy's, whose destructor is made of C."""

    def __init__(self, shape=(2, 3), dtype="float32"):
        import numpy as np

        self.array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
        self.shape, self.tolist = shape, self.array.tolist
        self.__dlpack__, self.__dlpack_device__ = self.array.__dlpack__, (lambda: (1, 0))


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


class IgnoresByteOffsets:
    """A NumPy array that a consumer without byte offsets made."""

    def __init__(self, x):
        self.taken = Consumer()(x)
        self.taken.pointer -= self.taken.offset

    def __repr__(self):
        numbers = self.taken.tolist()
        return str([numbers[:3], numbers[3:]])

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **keywords):
        import numpy as np

        return np.array(self.taken.tolist(), "float32").reshape(2, 3).__dlpack__(**keywords)


def forgetful_from_dlpack(x):
    """A consumer that ignores the byte offset."""
    return IgnoresByteOffsets(x)
