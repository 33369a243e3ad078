"""CUDA slices that an extension makes: who waits for them, and when their memory is freed.

The tests need no GPU: the driver is a fake, which ends a process that reads freed memory."""

from __future__ import annotations

import pytest

from support import Driver


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return Driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def slices(driver):
    """The driver, beside the example extension, which makes CUDA slices."""
    reason = "the example extension is not installed"
    if not hasattr(pytest.importorskip("dlbridge_example", reason=reason), "filled"):
        pytest.skip("the example extension is built without CUDA")
    return driver


SLICE = """
import dlbridge, dlbridge_example as example
from fake_cuda import read, stream

ours = stream()
x = example.filled(3, 7.0)
"""

WAITS = {
    "a stream": "t = dlbridge.from_dlpack(x, stream=ours)\nprint(read(t, ours))\n",
    "the default stream": "t = dlbridge.from_dlpack(x)\nprint(read(t, 1))\n",
    "a second consumer": "dlbridge.from_dlpack(x, stream=stream())\n"
    "t = dlbridge.from_dlpack(x, stream=ours)\nprint(read(t, ours))\n",
    "the consumer of a consumer": "t = dlbridge.from_dlpack(x, stream=stream())\n"
    "t = dlbridge.from_dlpack(t, stream=ours)\nprint(read(t, ours))\n",
    "an object of the same kind": "t = example.convert(x, x)\n"
    "t = dlbridge.from_dlpack(t, stream=ours)\nprint(read(t, ours))\n",
}


@pytest.mark.parametrize("code", WAITS.values(), ids=WAITS)
def test_a_consumer_of_a_slice_waits_for_its_stream(slices, code):
    slices.run(SLICE + code)
    assert slices.output == "[7.0, 7.0, 7.0]\n"
    slices.run(SLICE + code, forgets="cuStreamWaitEvent")
    assert slices.output != "[7.0, 7.0, 7.0]\n", "the driver is late"


def test_it_is_a_tensor_on_the_device(slices):
    slices.run(SLICE + "print(x, x.__dlpack_device__(), hex(x.data_ptr) != '0x0')\n")
    described = "dlbridge.Tensor(shape=(3,), dtype=float32, device=cuda:0)"
    assert slices.output == f"{described} (2, 0) True\n"


def test_a_stream_that_is_told_counts_instead(slices):
    slices.run(SLICE + "t = dlbridge.from_dlpack(x, stream=-1)\nprint(read(t, ours))\n")
    assert slices.output != "[7.0, 7.0, 7.0]\n", "nobody waits who does not want to"


def test_a_stream_of_rust_reads_an_argument_after_the_work_of_its_framework(slices):
    code = (
        SLICE + "from fake_cuda import fill\ntheirs = dlbridge.from_dlpack(x, stream=ours)\n"
        "fill(theirs.data_ptr, 0, 12, ours)\n"
        "copy = example.copied(dlbridge.from_dlpack(theirs, stream=ours))\n"
        "other = stream()\nprint(read(dlbridge.from_dlpack(copy, stream=other), other))\n"
    )
    slices.run(code)
    assert slices.output == "[0.0, 0.0, 0.0]\n"
    slices.run(code, forgets="cuStreamWaitEvent")
    assert slices.output != "[0.0, 0.0, 0.0]\n", "the driver is late"


def test_the_memory_is_freed_when_the_last_tensor_is_gone(slices):
    slices.run(
        SLICE + "t = dlbridge.from_dlpack(x, stream=ours)\ndel x\nprint(read(t, ours))\n"
        "at = t.data_ptr\ndel t\n"
    )
    assert slices.output == "[7.0, 7.0, 7.0]\n"


def test_a_device_that_is_not_there_is_said(slices):
    slices.run(
        SLICE + "try:\n    example.filled(3, 7.0, device=9)\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    assert "driver: opening the device" in slices.output


FREED = (
    SLICE
    + """
import sys, threading, types
import fake_cuda
from fake_cuda import GLOBAL, RELAXED, capture, destroy, end_capture, is_whole, join, read_late

def natural(import_it, stream, drop=lambda held: held.clear()):
    held = [import_it(example.filled(16, 7.0))]
    join(stream, ours)
    values = read_late(held[0], stream)
    drop(held)
    return values

def imported_for(stream):
    return lambda x: dlbridge.from_dlpack(x, stream=stream)

def on_a_thread(held):
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
"""
)

LATE = {
    "a named stream": "check(natural(imported_for(ours), ours))",
    "the default stream": "check(natural(dlbridge.from_dlpack, 1))",
    "a stream that no consumer named": "check(natural(imported_for(ours), unnamed))",
    "a borrower": "check(natural(lambda x: (x, dlbridge.from_dlpack(x, stream=ours))[0], unnamed))",
    "a second extension": "check(natural(lambda x: Hidden.importer(x), 1))",
    "a fresh thread": "check(natural(imported_for(ours), ours, on_a_thread))",
    "a destroyed stream": "gone = stream()\n"
    "    def drop(held):\n"
    "        destroy(gone)\n"
    "        held.clear()\n"
    "    check(lambda v=natural(imported_for(gone), gone, drop): v(1))",
}


class TestFree:
    """The memory of a slice is freed behind the work that reads it, whoever queued it."""

    @pytest.mark.parametrize("line", LATE.values(), ids=LATE)
    def test_the_natural_line_reads_what_rust_wrote(self, slices, line):
        code = (
            FREED
            + f"""
class Hidden:
    def __init__(self, x): self.x = x
    def __dlpack__(self, **keywords): return self.x.__dlpack__(**keywords)
    def __dlpack_device__(self): return self.x.__dlpack_device__()
    def importer(x): return dlbridge.from_dlpack(Hidden(x))

unnamed = stream()

def check(values):
    assert values() == [7.0] * 16

for _ in range(100):
    {line}
print("right")
"""
        )
        slices.run(code)
        assert slices.output == "right\n"

    def test_without_the_event_of_the_context_the_memory_is_gone(self, slices):
        code = FREED + "print(natural(imported_for(ours), ours)())\n"
        with pytest.raises(AssertionError, match="illegal memory access: it was freed before"):
            slices.run(code, forgets="cuCtxRecordEvent")

    def test_the_end_of_the_process_frees_nothing_too_early(self, slices):
        slices.run(FREED + "values = natural(imported_for(ours), ours, lambda held: None)\n")

    @pytest.mark.parametrize("mode", ["GLOBAL", "RELAXED"])
    def test_a_drop_leaves_the_capture_of_pytorchs_stream_whole(self, slices, mode):
        slices.run(
            FREED
            + f"""
from test_streams import exchanging
kind, asked, _ = exchanging((2, 0), stream=ours)
sys.modules["torch"] = types.SimpleNamespace(Tensor=kind)
held = [dlbridge.from_dlpack(example.filled(16, 7.0), stream=ours)]
address = held[0].data_ptr
capture(ours, {mode})
held.clear()
assert is_whole(ours)
end_capture(ours)
calls = len(asked)
example.filled(1, 0.0)
print(calls > 0)
"""
        )
        assert slices.output == "True\n", "PyTorch was asked"

    def test_a_drop_on_another_thread_leaves_the_capture_whole(self, slices):
        slices.run(
            FREED
            + """
from test_exchange_api import Stream
from test_streams import exchanging
kind, _, _ = exchanging((2, 0))

def current(_kind, _number, out):
    out[0] = ours if threading.current_thread() is threading.main_thread() else 0
    return 0

kind.kept.stream = Stream(current)
sys.modules["torch"] = types.SimpleNamespace(Tensor=kind)
held = [example.filled(16, 7.0), example.filled(16, 7.0)]
capture(ours)
held.append(held[0].__dlpack__(stream=ours))  # as torch.from_dlpack does
on_a_thread(held)
assert is_whole(ours)
end_capture(ours)
print("whole")
"""
        )
        assert slices.output == "whole\n"

    def test_a_drop_breaks_a_capture_that_nothing_names(self, slices):
        """The page on GPUs says so: nothing tells dlbridge on which stream CuPy works."""
        slices.run(
            FREED + "held = [dlbridge.from_dlpack(example.filled(16, 7.0), stream=ours)]\n"
            "capture(ours)\nheld.clear()\nprint(is_whole(ours))\n"
        )
        assert slices.output == "False\n"

    def test_a_forked_child_drops_what_it_inherited(self, slices):
        slices.run(
            FREED
            + """
import os
from test_streams import Device
held = [example.filled(16, 7.0), dlbridge.from_dlpack(Device(), stream=ours)]
held.append(dlbridge.from_dlpack(held[0], stream=ours))
child = os.fork()
if child == 0:
    held.clear()
    try:
        x.__dlpack__(stream=ours)
    except BufferError as error:
        os._exit("a forked child" not in str(error))
    os._exit(2)
print(os.waitpid(child, 0)[1])
"""
        )
        assert slices.output == "0\n"


class TestCapture:
    def test_a_slice_is_exported_inside(self, slices):
        slices.run(
            FREED + "capture(ours)\nt = dlbridge.from_dlpack(x, stream=ours)\n"
            "print(is_whole(ours))\nend_capture(ours)\nprint(read(t, ours))\n"
        )
        assert slices.output == "True\n[7.0, 7.0, 7.0]\n"

    def test_a_replay_reads_what_the_graph_writes(self, slices):
        slices.run(
            FREED
            + """
from fake_cuda import copy, fill, launch, synchronize
y = example.filled(3, 0.0)
y = dlbridge.from_dlpack(y, stream=ours)
dlbridge.from_dlpack(x, stream=ours)
synchronize(ours)
capture(ours)
fill(x.data_ptr, 0, 12, ours)
t = dlbridge.from_dlpack(x, stream=ours)
t.__dlpack__(stream=ours)
copy(y.data_ptr, t.data_ptr, 12, ours)
graph = end_capture(ours)
print(read(t, ours), "recorded, and not yet run")
for byte in 0x40, 0x41:
    fill(x.data_ptr, byte, 12, ours)
    fill(y.data_ptr, byte, 12, ours)
    launch(graph, ours)
    print(read(t, ours), read(y, ours))
"""
        )
        first, *replays = slices.output.splitlines()
        assert first == "[7.0, 7.0, 7.0] recorded, and not yet run"
        assert replays == ["[0.0, 0.0, 0.0] [0.0, 0.0, 0.0]"] * 2
