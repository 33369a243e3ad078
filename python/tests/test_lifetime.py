"""Memory lives as long as anybody looks at it, and no longer."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import dlbridge
import hostile
from hostile import Managed, Producer, producer_of
from support import arange


class Watched(np.ndarray):
    """An array that can be watched dying."""


def watched(size=1000):
    array = np.arange(size, dtype="float64").view(Watched)
    return array, weakref.ref(array)


no_double_release = hostile.no_double_release


def test_a_tensor_keeps_its_producer_alive():
    array, alive = watched()
    tensor = dlbridge.from_dlpack(array)
    del array
    gc.collect()
    assert alive() is not None
    assert np.from_dlpack(tensor)[999] == 999
    del tensor
    assert alive() is None


def test_a_consumer_keeps_the_producer_of_a_tensor_alive():
    array, alive = watched()
    consumer = np.from_dlpack(dlbridge.from_dlpack(array))
    address = array.ctypes.data
    del array
    gc.collect()
    assert alive() is not None
    assert (consumer.ctypes.data, consumer[999]) == (address, 999)
    del consumer
    assert alive() is None


def test_memory_of_rust_lives_as_long_as_its_last_consumer():
    tensor = arange(100_000, dtype="int32")
    first, second = np.from_dlpack(tensor), np.from_dlpack(tensor)
    del tensor, first
    gc.collect()
    churn = [dlbridge.zeros(100_000, dtype="int32") for _ in range(4)]
    assert second.tolist() == list(range(100_000))
    del churn


def test_a_capsule_alone_keeps_the_memory():
    array, alive = watched()
    capsule = dlbridge.from_dlpack(array).__dlpack__(max_version=(1, 3))
    del array
    assert alive() is not None
    assert np.from_dlpack(dlbridge.from_dlpack(capsule))[5] == 5
    del capsule
    assert alive() is None


def test_a_copy_lets_its_source_go():
    array, alive = watched()
    tensor = dlbridge.from_dlpack(array, copy=True)
    del array
    assert alive() is None
    assert np.from_dlpack(tensor)[999] == 999


def test_a_long_chain_releases_its_first_owner_once():
    made = Managed()
    tensor = dlbridge.from_dlpack(producer_of(made))
    for _ in range(200):
        tensor = dlbridge.from_dlpack(tensor)
        tensor = dlbridge.from_dlpack(np.from_dlpack(tensor))
    assert (tensor.data_ptr, made.releases) == (made.base, 0)
    del tensor
    assert made.releases == 1


def test_inspecting_releases_at_once():
    array, alive = watched()
    dlbridge.inspect(array)
    del array
    assert alive() is None


def test_a_consumer_may_drop_on_another_thread():
    made = Managed()
    box = [np.from_dlpack(dlbridge.from_dlpack(producer_of(made)))]
    assert made.releases == 0
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert made.releases == 1


@pytest.mark.parametrize("framework", ["torch", "jax.numpy"])
def test_a_framework_that_drops_without_the_interpreter_releases_once(framework):
    library = pytest.importorskip(framework, reason=f"{framework} is not installed")
    for _ in range(20):
        array, alive = watched()
        tensor = dlbridge.from_dlpack(array)
        box = [library.from_dlpack(tensor)]
        del array, tensor
        thread = threading.Thread(target=box.clear)
        thread.start()
        thread.join()
        gc.collect()
        assert is_gone_in_the_end(alive)


def is_gone_in_the_end(alive):
    """JAX releases memory on a thread of its own, a moment later."""
    for _ in range(1000):
        if alive() is None:
            return True
        time.sleep(0.01)
    return False


def test_a_cycle_through_a_producer_is_collected():
    class Node(Producer):
        pass

    made = Managed()
    node = Node(lambda **_keywords: made.capsule())
    node.tensor, node.itself = dlbridge.from_dlpack(node), node
    alive = weakref.ref(node)
    del node
    assert made.releases == 0
    gc.collect()
    assert alive() is None
    assert made.releases == 1


def test_a_release_may_use_the_library_again():
    seen = []
    made = Managed(on_release=lambda: seen.append(dlbridge.zeros(3).shape))
    dlbridge.from_dlpack(producer_of(made))
    assert seen == [(3,)]


def grow(work, times):
    """How many bytes the process grew by, after a first round has filled every cache."""
    work(times // 20)
    before = hostile.resident_bytes()
    work(times)
    return hostile.resident_bytes() - before


def test_round_trips_leave_nothing_behind():
    array = np.arange(64, dtype="float32")
    references = sys.getrefcount(array)

    def work(times):
        for _ in range(times):
            np.from_dlpack(dlbridge.from_dlpack(array))

    # The smallest allocation takes 32 bytes.
    assert grow(work, 100_000) < 2 << 20
    assert sys.getrefcount(array) == references


@pytest.mark.parametrize(
    "once",
    [
        lambda tensor: tensor.__dlpack__(),
        lambda tensor: tensor.__dlpack__(max_version=(1, 3)),
        lambda tensor: tensor.__dlpack__(max_version=(1, 3), copy=True),
        lambda tensor: dlbridge.from_dlpack(tensor, copy=True),
        lambda tensor: dlbridge.inspect(tensor),
        lambda tensor: dlbridge.from_dlpack(tensor.__dlpack__()),
        lambda tensor: (repr(tensor), tensor.shape, tensor.strides, tensor.dtype),
    ],
    ids=["legacy", "versioned", "copied out", "copied in", "inspected", "bare", "attributes"],
)
def test_each_operation_leaves_nothing_behind(once):
    tensor = dlbridge.zeros((4, 4), dtype="float32")

    def work(times):
        for _ in range(times):
            once(tensor)

    assert grow(work, 20_000) < 1 << 20


def test_null_strides_leave_nothing_behind():
    def work(times):
        for _ in range(times):
            dlbridge.from_dlpack(producer_of(Managed(shape=[2] * 6, strides=None)))

    assert grow(work, 20_000) < 2 << 20


AT_EXIT = {
    "a tensor of Rust": "kept = dlbridge.zeros(10)",
    "a tensor of NumPy": "kept = dlbridge.from_dlpack(np.arange(10))",
    "a consumer": "kept = np.from_dlpack(dlbridge.from_dlpack(np.arange(10)))",
    "a capsule": "kept = dlbridge.zeros(10).__dlpack__(max_version=(1, 3))",
    "a legacy capsule": "kept = dlbridge.from_dlpack(np.arange(10)).__dlpack__()",
    "the module": "sys.keep = kept = dlbridge.zeros(3), dlbridge",
    "a cycle": "kept = []; kept += [kept, dlbridge.from_dlpack(np.arange(3)), kept]",
    "a thread": (
        "kept = dlbridge.from_dlpack(np.arange(10))\n"
        "run = threading.Event().wait\n"
        "threading.Thread(target=lambda t: run(), args=(kept,), daemon=True).start()"
    ),
    "an exit hook": "import atexit; atexit.register(lambda t: None, dlbridge.zeros(3))",
    "a hidden place": "ctypes.pythonapi.Py_IncRef(ctypes.py_object(dlbridge.zeros(3)))",
}


@pytest.mark.parametrize("what", AT_EXIT)
def test_a_tensor_that_lives_at_the_interpreters_exit_does_no_harm(what):
    script = f"import ctypes, sys, threading, dlbridge, numpy as np\n{AT_EXIT[what]}\n"
    result = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_torch_may_hold_our_memory_at_the_interpreters_exit():
    pytest.importorskip("torch", reason="torch is not installed")
    script = "import dlbridge, torch; kept = torch.from_dlpack(dlbridge.zeros(10)); kept.own = kept"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("protocol", ["__array_interface__", "__dlpack__"])
def test_a_producer_that_comes_back_to_life_is_imported_again(protocol):
    kept = []

    class Producer:
        def __init__(self):
            self.array = arange(5)

        def __getattr__(self, name):
            if name != protocol:
                raise AttributeError(name)
            return getattr(self.array, name)

        def __del__(self):
            kept.append((self, dlbridge.from_dlpack(self)))

    if protocol == "__dlpack__":
        Producer.__dlpack__ = lambda self, **options: self.array.__dlpack__(**options)
        Producer.__dlpack_device__ = lambda self: self.array.__dlpack_device__()
    first = dlbridge.from_dlpack(Producer())
    values = np.from_dlpack(first).tolist()
    del first
    gc.collect()
    ((producer, second),) = kept
    alive = weakref.ref(producer)
    assert values == np.from_dlpack(second).tolist() == arange(5).tolist()
    kept.clear()
    del producer, second
    gc.collect()
    assert alive() is None
