"""Sealed tensors in other processes: how they get there, and what is left behind."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
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


def shared_memory():
    """The memory of all memory files of this machine, in bytes."""
    (found,) = re.findall(r"Shmem: +(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found) << 10


def receive(peer):
    """The tensors that `socket.send_fds`, or `SealedTensors::send` in Rust, sends."""
    _, (number,), _, _ = socket.recv_fds(peer, 1, 1)
    sealed = dlbridge.open_sealed(number)
    os.close(number)
    return sealed


def run(scenario, method):
    """In a process of its own: a fork of this one would copy locks that other threads hold."""
    command = [sys.executable, str(PEERS), scenario, method]
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


@pytest.mark.parametrize("step", ["filled", "sealed", "sent"])
def test_a_maker_that_is_killed_leaves_nothing_behind(step):
    before = shared_memory()
    here, there = socket.socketpair()
    with here:
        with there:
            command = [sys.executable, str(PEERS), "maker", str(there.fileno()), step]
            child = subprocess.Popen(command, pass_fds=[there.fileno()])
        if step == "sent":
            tensor = receive(here)["x"]
        else:
            assert here.recv(1) == b"."
        child.kill()
        child.wait()
    if step == "sent":
        # Neither the maker nor a descriptor is left.
        array = np.from_dlpack(tensor)
        assert (array[::4096] == 7).all()
        del tensor, array
    # Other programs of this machine use shared memory as well, for a while.
    until = time.monotonic() + 60
    while shared_memory() >= before + SIZE // 2:
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize("rounds", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_rounds_of_sending_leave_no_descriptor_behind(rounds):
    here, there = socket.socketpair()
    before = descriptors()
    with here, there:
        for number in range(rounds):
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
