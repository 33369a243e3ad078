"""What cuts into a call, and whether all goes on after it: a fork, the process's end, Ctrl-C, and a
coroutine that leaves a release and comes back when the releases around it have ended."""

from __future__ import annotations

import contextlib
import gc
import signal
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import pytest

import dlbridge

FORKS = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")

FORKING = """
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


@FORKS
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
    run_forking(FORKING + f"\n{work}\ncheck()\nend()\n")


@FORKS
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
    run_forking(FORKING + textwrap.dedent(program))


def run_forking(program):
    pytest.importorskip("dlbridge_example", reason="the example extension is not installed")
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


USES = {
    "import by a method in Python": "dlbridge.from_dlpack(Slow())",
    "import from NumPy": "dlbridge.from_dlpack(array)",
    "export to NumPy": "np.from_dlpack(own)",
    "a capsule": "own.__dlpack__(), memoryview(own)",
    "a deleter that runs Python code": "dlbridge.from_dlpack(np.asarray(Memory()).__dlpack__())",
    "an object that runs Python code": "dlbridge.from_dlpack(np.asarray(Memory()))",
    "a table that runs Python code": "dlbridge.from_dlpack(Tabled())",
    "another protocol": "dlbridge.from_dlpack(Interface())",
    "the buffer of an object that runs Python code": "dlbridge.from_dlpack(Bytes(8))",
    "a stream of an object": "refused(Stream())",
    "a class of Rust that runs Python code": "np.from_dlpack(_native._Calls(slow))",
    "the buffer of a class of Rust that runs Python code": "memoryview(_native._Calls(slow))",
    "a masked array": "dlbridge.from_dlpack(masked)",
    "a dtype": "dlbridge.zeros(4, dtype=Named())",
    "a dtype that is a class": "dlbridge.zeros(4, dtype=Kind)",
    "a device": "dlbridge.from_dlpack(array, device=Place())",
    "a shape": "dlbridge.zeros((Number(), Number()))",
    "an index": "own[Number()], own[Number():]",
    "a protocol of pickle": "own.__reduce_ex__(Number())",
    "extents": "dlbridge.zeros(1).reshape(Number(), Number())",
    "a device of a keyword": "own.__dlpack__(dl_device=(Number(), 0))",
    "a drop on a thread of Rust": "_native._drop_on_threads([dlbridge.from_dlpack(array)])",
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_daemon_threads_do_not_abort_the_process(use):
    """CPython before 3.14 ends such a thread by `pthread_exit`, which unwinds its frames."""
    program = textwrap.dedent(
        f"""
        import sys, threading, time
        sys.path = {sys.path!r}
        import numpy as np
        import dlbridge
        import test_exchange_api as api
        from dlbridge import _native

        array, own = np.ones(4), dlbridge.zeros((4,))

        class Slow:
            def __dlpack__(self, **keywords):
                for _ in range(50):
                    pass
                return array.__dlpack__(**keywords)

            def __dlpack_device__(self):
                return (1, 0)

        masked = np.ma.masked_array([1.0, 2.0], mask=[False, False])

        def slow():
            for _ in range(50):
                pass
            return Slow()

        class Memory:
            __array_interface__ = array.__array_interface__

            def __del__(self):
                for _ in range(50):
                    pass

        class Interface:
            @property
            def __array_interface__(self):
                for _ in range(50):
                    pass
                return array.__array_interface__

        class Named:
            @property
            def name(self):
                for _ in range(50):
                    pass
                return "float32"

            isnative, dtype = True, property(lambda self: self)

        class Meta(type):
            __name__ = Named.name

        Kind = Meta("Kind", (), dict())

        class Place:
            index, type = None, property(lambda self: "cpu" if slow() else "")

        class Number:
            def __index__(self):
                return 1 if slow() else 0

        class Bytes(bytearray):
            __del__ = Memory.__del__

        class Stream:
            def __cuda_stream__(self):
                for _ in range(50):
                    pass
                return (0, 5)

        def refused(stream):
            try:
                own.__dlpack__(stream=stream)
            except BufferError:
                pass

        def from_object(_, out):
            for _ in range(50):
                pass
            return ours.from_object(own, out)

        ours = api.Table.from_address(
            api.pointer(dlbridge.Tensor.__dlpack_c_exchange_api__, api.CAPSULE_NAME)
        )
        table = api.Table.from_buffer_copy(ours)
        table.from_object = api.FromObject(from_object)
        Tabled = api.producer(table)

        def work():
            while True:
                {use}

        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.05)
        """
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()


def strided(shape, strides):
    memory = np.zeros(1 << 21, "uint8")
    return dlbridge.from_dlpack(np.lib.stride_tricks.as_strided(memory, shape, strides))


@pytest.fixture
def interrupted():
    """Runs a function that takes hours, and interrupts it after half a second."""

    def interrupt(*_):
        raise KeyboardInterrupt

    def run(function):
        with pytest.raises(KeyboardInterrupt):
            try:
                function()
            finally:
                # Freeing what was made may take longer than the timer. An interrupt that is due by
                # now is raised here.
                signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)

    if not hasattr(signal, "setitimer"):
        pytest.skip("no timer")
    before = signal.signal(signal.SIGALRM, interrupt)
    # Again and again: a collection of garbage runs `gc.callbacks`, of which JAX has one. CPython
    # reports what a signal handler raises in there to `sys.unraisablehook` only.
    signal.setitimer(signal.ITIMER_REAL, 0.5, 2)
    yield run
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_list_is_interrupted(interrupted):
    """`repr` and `tolist` of a broadcast of 2^40 elements could not be interrupted."""
    interrupted(strided((1 << 20, 1 << 20), (0, 0)).tolist)


def test_a_list_of_short_lists_is_interrupted(interrupted):
    interrupted(strided((2,) * 30, (0,) * 30).tolist)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer")
def test_a_handler_finds_no_list_before_it_is_full():
    """A handler runs while a long list is filled: an item that was not there ended the process."""
    count, calls, found = (1 << 22) + 7, [], []

    def look(*_):
        calls.append(None)
        found.extend(x for x in gc.get_objects() if type(x) is list and len(x) == count)

    tensor = dlbridge.from_dlpack(np.zeros(count))
    before = signal.signal(signal.SIGALRM, look)
    try:
        for _ in range(20):
            # Once for each list: the look takes longer than a list.
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            full = tensor.tolist()
            signal.setitimer(signal.ITIMER_REAL, 0)
            if calls:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (calls != [], found) == (True, [])
    assert gc.is_tracked(full) and len(full) == count


class Memory(bytearray):
    """Memory that a weak reference can watch."""


class Chunks:
    """A column whose chunks come from one stream."""

    def __init__(self, capsule):
        self.capsules = [capsule]

    def __arrow_c_stream__(self, requested_schema=None):
        return self.capsules.pop()


@pytest.mark.parametrize("raises", [False, True])
def test_a_copy_of_chunks_handles_signals(raises):
    """A query of minutes, which produces chunk by chunk, saw Ctrl-C at its end."""
    pa = pytest.importorskip("pyarrow")
    if not hasattr(signal, "setitimer"):
        pytest.skip("no timer")
    memory = Memory(64)
    column = pa.Array.from_buffers(pa.uint8(), 64, [None, pa.py_buffer(memory)])
    chunks = Chunks(pa.chunked_array([column] * 200_000).__arrow_c_stream__())
    is_used, memory, column = weakref.ref(memory), None, None
    seen = []

    def handle(_, frame):
        if frame.f_code is not Chunks.__arrow_c_stream__.__code__:
            seen.append(is_used() is not None)
            # Once: the next signal may arrive outside of the call.
            if raises and seen[-1] and seen.count(True) == 1:
                raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handle)
    try:
        with pytest.raises(KeyboardInterrupt) if raises else contextlib.nullcontext():
            signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
            dlbridge.from_dlpack(chunks, copy=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    # While the stream was there, not after the copy.
    assert any(seen)
    assert is_used() is None


@pytest.mark.parametrize("ndim", [10, 15])
def test_text_of_many_short_axes_has_no_values(ndim):
    text = repr(strided((6,) * ndim, (0,) * ndim))
    assert text.startswith("dlbridge.Tensor([...], shape=(6, 6, ")
    assert len(repr(strided((6,) * 4, (0,) * 4))) > 6**4


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
    """Python code in a release switched to another greenlet, and came back after the release
    around it had ended: it went on over freed frames of the stack."""
    greenlet = pytest.importorskip("greenlet", reason="greenlet is not installed")
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
