"""Threads that use tensors while the interpreter ends do not end the process."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

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
    for _ in range(6):
        done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
