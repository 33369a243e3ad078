"""A consumer with a fault that its program shows."""

from __future__ import annotations

import numpy as np

from planted import Consumer


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
        return np.array(self.taken.tolist(), "float32").reshape(2, 3).__dlpack__(**keywords)


def from_dlpack(x):
    """A consumer that ignores the byte offset."""
    return IgnoresByteOffsets(x)
