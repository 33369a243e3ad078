"""Sealed tensors in other processes: how they get there, and what is left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dlbridge
from sealed_peers import SIZE, descriptors, file_of

if sys.platform != "linux":
    pytest.skip("sealed memory is for Linux", allow_module_level=True)

PEERS = Path(__file__).with_name("sealed_peers.py")
SCENARIOS = ["process", "queue", "pool", "executor"]
METHODS = ["fork", "forkserver", "spawn"]


def receive(here):
    """The tensors that `socket.send_fds`, or `SealedTensors::send` in Rust, sends."""
    _, (number,), _, _ = socket.recv_fds(here, 1, 1)
    sealed = dlbridge.open_sealed(number)
    os.close(number)
    return sealed


def run(scenario, *method):
    """In a process of its own: a fork of this one would copy locks that other threads hold."""
    command = [sys.executable, str(PEERS), scenario, *method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_multiprocessing_sends_the_memory_itself(scenario, method):
    run(scenario, method)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_workers_of_pytorchs_loader_send_the_memory_itself(method):
    pytest.importorskip("torch", reason="torch is not installed")
    run("loader", method)


def test_a_forked_child_delays_sealing():
    run("forked", "fork")


def test_a_socket_sends_the_memory_itself():
    sealed = dlbridge.seal({"x": np.arange(5)})
    here, there = socket.socketpair()
    with here, there:
        socket.send_fds(here, [b"."], [sealed.fileno()])
        received = receive(there)
    assert file_of(received) == file_of(sealed)
    assert received["x"].tolist() == [0, 1, 2, 3, 4]


def test_the_limit_of_mappings_is_an_error_that_names_the_way_out():
    if int(Path("/proc/sys/vm/max_map_count").read_text()) > 100_000:
        pytest.skip("this machine allows more mappings")
    run("limit")


def memory_file(process):
    """The descriptor of the memory file that another process has."""
    (path, *_) = [
        path
        for path in Path(f"/proc/{process}/fd").iterdir()
        if os.readlink(path).startswith("/memfd:dlbridge")
    ]
    return path


class Watch:
    """The kernel's word that a file is freed: no process has a descriptor or a mapping of it."""

    def __init__(self, path):
        libc = ctypes.CDLL(None)
        self.inotify = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        deleted = 0x400
        assert libc.inotify_add_watch(self.inotify, bytes(path), deleted) > 0

    def is_freed(self):
        try:
            return bool(os.read(self.inotify, 256))
        except BlockingIOError:
            return False

    def close(self):
        os.close(self.inotify)


@contextlib.contextmanager
def peer(role, last):
    """A process that stops after a step of its life, with a socket to it, until it is killed."""
    here, there = socket.socketpair()
    with here:
        with there:
            command = [sys.executable, str(PEERS), role, str(there.fileno()), last]
            child = subprocess.Popen(command, pass_fds=[there.fileno()])
        try:
            yield child.pid, here
        finally:
            child.kill()
            assert child.wait() == -signal.SIGKILL


@pytest.mark.parametrize("last", ["allocated", "taken", "filled", "sealed", "read", "sent"])
def test_a_maker_that_is_killed_at_any_step_leaves_nothing_behind(last):
    tensor = None
    with peer("maker", last) as (process, here):
        if last == "sent":
            tensor = receive(here)["x"]
        assert here.recv(1) == b"."
        watch = Watch(memory_file(process))
        assert not watch.is_freed()
    if tensor is not None:
        # Neither the maker nor a descriptor is left.
        assert not watch.is_freed()
        assert (np.from_dlpack(tensor)[::4096] == 7).all()
        del tensor
    assert watch.is_freed()
    watch.close()


def test_a_reader_that_is_killed_at_any_step_leaves_nothing_behind():
    sealed = dlbridge.seal({"x": np.full(SIZE, 7, "uint8")})
    watch = Watch(Path(f"/proc/self/fd/{sealed.fileno()}"))
    for last in ["received", "opened", "read", "private", "written", "closed"]:
        with peer("reader", last) as (_, here):
            socket.send_fds(here, [b" "], [sealed.fileno()])
            assert here.recv(1) == b".", last
    tensor = sealed["x"]
    del sealed
    assert (np.from_dlpack(tensor)[::4096] == 7).all()
    assert not watch.is_freed(), "while a tensor is alive"
    del tensor
    assert watch.is_freed()
    watch.close()


def test_rounds_of_sending_leave_no_descriptor_behind():
    here, there = socket.socketpair()
    before = descriptors()
    with here, there:
        for number in range(10_000):
            if number % 10 == 0:
                sealed = dlbridge.seal({"x": np.full(8, number)})
            socket.send_fds(here, [b"."], [sealed.fileno()])
            received = receive(there)
            tensors = (received["x"], received.private()["x"])
        assert tensors[0].tolist() == [number - number % 10] * 8
        del sealed, received
        assert descriptors() == before
    del tensors
    assert descriptors() == before - 2


def test_rounds_of_refusals_leave_no_descriptor_behind():
    unsealed = os.memfd_create("x")
    before = descriptors()
    for _ in range(1000):
        with pytest.raises(ValueError, match="seals"):
            dlbridge.open_sealed(unsealed)
        batch = dlbridge.empty_sealed(3)
        array = np.from_dlpack(batch.tensors()["tensor"])
        with pytest.raises(BufferError):
            batch.seal()
    del batch, array
    assert descriptors() == before
    os.close(unsealed)
