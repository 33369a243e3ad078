"""Forks while tensors are imported, borrowed and released: both processes go on."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("dlbridge_example", reason="the example extension is not installed")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")

PROGRAM = """
import os, signal, threading
import numpy as np
import dlbridge
import dlbridge_example
from dlbridge import _native

x = np.arange(4, dtype=np.float32)
parent = os.getpid()

class Forks:
    def __dlpack__(self, **keywords):
        os.fork()
        return x.__dlpack__(**keywords)

class Memory:
    def __init__(self, inner=None):
        self.inner, self.__array_interface__ = inner, x.__array_interface__

    def __del__(self):
        if self.inner is None and os.getpid() == parent:
            os.fork()

def deferred():
    tensors = [dlbridge.from_dlpack(np.asarray(Memory()).__dlpack__())]
    _native._drop_on_threads(tensors)
    del tensors
    dlbridge.from_dlpack(x)

def nested():
    array = np.asarray(Memory())
    for _ in range(20):
        array = np.asarray(Memory(dlbridge.from_dlpack(array)))

def check():
    # Nothing is borrowed any more, in either process.
    signal.alarm(30)
    assert dlbridge_example.norm(x) > 0
    dlbridge_example.normalise(x)
    assert len(dlbridge.from_dlpack(x).tolist()) == 4
    signal.alarm(0)

def end():
    if os.getpid() != parent:
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.mark.parametrize(
    "work",
    [
        pytest.param("dlbridge.from_dlpack(Forks())", id="in an import"),
        pytest.param("dlbridge_example.norm(Forks())", id="in an argument"),
        pytest.param("dlbridge.from_dlpack(np.asarray(Memory()).__dlpack__())", id="in a deleter"),
        pytest.param("deferred()", id="in a deferred deleter"),
        pytest.param("nested()", id="in the last of nested deleters"),
    ],
)
def test_both_processes_go_on(work):
    run(PROGRAM + f"\n{work}\ncheck()\nend()\n")


def test_a_fork_beside_threads_leaves_a_child_that_works():
    program = """
        ended = threading.Event()

        def work():
            array = np.arange(1000, dtype=np.float32)
            while not ended.is_set():
                dlbridge_example.norm(array)
                dlbridge_example.normalise(array)
                _native._drop_on_threads([dlbridge.from_dlpack(array)])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            if os.fork() == 0:
                check()
                os._exit(0)
            assert os.wait()[1] == 0
        ended.set()
        for thread in threads:
            thread.join()
        check()
    """
    run(PROGRAM + textwrap.dedent(program))


def run(program):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
