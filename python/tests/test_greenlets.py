"""Releases that a coroutine leaves, and comes back to when the releases around them have ended."""

from __future__ import annotations

import numpy as np
import pytest

import dlbridge

greenlet = pytest.importorskip("greenlet", reason="greenlet is not installed")


class Owner:
    """Memory whose end runs a function."""

    def __init__(self, end):
        self.memory, self.end = np.arange(8.0), end
        self.__array_interface__ = self.memory.__array_interface__

    def __del__(self):
        self.end()


def exported(end):
    return np.from_dlpack(dlbridge.from_dlpack(np.asarray(Owner(end))))


class Deep:
    """Frames of C between the coroutine's start and its switch."""

    def __init__(self, depth, act):
        self.depth, self.act = depth, act

    def __repr__(self):
        if self.depth:
            return repr([Deep(self.depth - 1, self.act)])
        self.act()
        return "end"


@pytest.mark.parametrize("count", [1, 2, 15])
def test_a_release_ends_after_the_one_that_it_began_in(count):
    main, log = greenlet.getcurrent(), []

    def inner(name):
        def end():
            log.append(f"{name} left")
            main.switch()
            log.append(f"{name} back")

        array = exported(end)
        del array
        log.append(f"{name} done")

    others = [greenlet.greenlet(inner) for _ in range(count)]

    def outer():
        for name, other in enumerate(others):
            other.switch(name)
        log.append("outer left")

    array = exported(outer)
    del array
    log.append("outer done")
    repr(Deep(20, lambda: [other.switch() for other in others]))
    names = range(count)
    left = [f"{name} left" for name in names]
    back = [f"{name} {what}" for name in names for what in ("back", "done")]
    assert log == [*left, "outer left", "outer done", *back]

    ended = []
    array = exported(lambda: ended.append(True))
    del array
    assert ended == [True]
