"""Sealed tensors in other processes: how they get there, and what is left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import dlbridge
from sealed_peers import SIZE, descriptors, file_of, look, make
from support import arange

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


def test_joblib_shares_the_memory_itself():
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    sealed = make(1000)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(look)(x) for x in [sealed] * 4)
        assert found == [look(sealed)] * 4
        made = joblib.Parallel()(joblib.delayed(make)(size) for size in (10, 100))
    assert all(x.metadata["pid"] != str(os.getpid()) for x in made)
    assert [look(x)[0] for x in made] == [45, 4950]


@pytest.mark.slow
def test_dask_shares_the_memory_itself():
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    )
    sealed = make(1000)
    with cluster, cluster.get_client() as client:
        first, second = client.scheduler_info()["workers"]
        assert client.submit(look, sealed, workers=[first]).result() == look(sealed)
        made = client.submit(make, 100, workers=[first])
        # From worker to worker, and to this process.
        found = client.submit(look, made, workers=[second]).result()
        assert found == look(made.result()) == (4950, found[1])


@pytest.fixture
def sealed():
    return dlbridge.seal({"x": np.arange(3), "y": np.ones((2, 3))})


def test_each_pickle_of_dropped_tensors_is_loaded() -> None:
    sealed = dlbridge.seal(np.arange(3))
    pickles = [pickle.dumps(sealed) for _ in range(3)]
    del sealed
    for one in pickles:
        assert list(np.from_dlpack(pickle.loads(one)["tensor"])) == [0, 1, 2]
    with pytest.raises(OSError, match="revoked"):
        pickle.loads(pickles[0])


class TestHandles:
    def test_a_handle_opens_while_its_tensors_exist(self, sealed):
        handle = sealed.handle()
        assert handle == sealed.handle()
        opened = [dlbridge.open_handle(handle) for _ in range(3)]
        assert all(x["y"].tolist() == [[1, 1, 1]] * 2 for x in opened)
        mine = dlbridge.seal(arange(3))
        handle = mine.handle()
        del mine
        with pytest.raises(OSError, match="revoked, used"):
            dlbridge.open_handle(handle)
        # What was opened has handles of its own.
        assert dlbridge.open_handle(opened[0].handle())["y"].shape == (2, 3)

    def test_a_handle_of_one_use_keeps_the_memory_until_then(self):
        before = len(os.listdir("/proc/self/fd"))
        handles = [dlbridge.seal(arange(size)).handle(once=True) for size in (3, 4)]
        assert [dlbridge.open_handle(x)["tensor"].shape for x in handles] == [(3,), (4,)]
        for handle in handles:
            with pytest.raises(OSError, match="revoked, used"):
                dlbridge.open_handle(handle)
        # The server's own socket.
        assert len(os.listdir("/proc/self/fd")) <= before + 1

    def test_forged_bytes_are_refused(self, sealed):
        handle = sealed.handle()
        for bad, error, text in [
            (b"", ValueError, "expected a handle of 84 bytes"),
            (handle[:-1], ValueError, "expected a handle of 84 bytes"),
            (b"x" + handle[1:], ValueError, "expected a handle of 84 bytes"),
            # The boot, the network namespace, the socket, the secret.
            (handle[:8] + b"x" + handle[9:], OSError, "of this machine, its last boot"),
            (handle[:44] + bytes(8) + handle[52:], OSError, "this network namespace"),
            (handle[:52] + bytes(16) + handle[68:], OSError, f"process {os.getpid()}, which made"),
            (handle[:68] + bytes(16), OSError, "revoked, used"),
            (handle[:-1] + bytes([handle[-1] ^ 1]), OSError, "revoked, used"),
        ]:
            with pytest.raises(error, match=text):
                dlbridge.open_handle(bad)
        assert dlbridge.open_handle(handle)["y"].shape == (2, 3)

    def test_a_file_that_is_not_sealed_is_refused(self, sealed):
        """A process of this user whose socket has another name."""
        handle, name = sealed.handle(), os.urandom(16)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(b"\0dlbridge-" + name)
            server.listen()

            def serve():
                client = server.accept()[0]
                with client:
                    assert len(client.recv(100)) == 16
                    file = os.memfd_create("x", os.MFD_ALLOW_SEALING)
                    socket.send_fds(client, [b"."], [file])
                    os.close(file)

            thread = threading.Thread(target=serve)
            thread.start()
            with pytest.raises(ValueError, match="without the seals"):
                dlbridge.open_handle(handle[:52] + name + handle[68:])
            thread.join()

    def test_another_user_and_another_namespace_are_refused(self, sealed):
        if os.getuid() != 0:
            pytest.skip("needs root, to be another user")
        handle, name = sealed.handle(), os.urandom(16)
        libc, new_network = ctypes.CDLL(None), 0x40000000
        for change, text in [
            (lambda: os.setuid(65534), "of another user"),
            (lambda: libc.unshare(new_network), "this network namespace"),
        ]:
            assert child_is_refused(handle, change, text) == 0
        # A socket of another user, who has forged the handle.
        here, there = socket.socketpair()
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(b"\0dlbridge-" + name)
                server.listen()
                there.send(b".")
                there.recv(1)
                os._exit(0)
        here.recv(1)
        with pytest.raises(OSError, match="found one of another user"):
            dlbridge.open_handle(handle[:52] + name + handle[68:])
        here.send(b".")
        os.waitpid(child, 0)
        # A handle that a forked child makes is its own, and revokes none of its parent.
        assert dlbridge.open_handle(handle)["y"].shape == (2, 3)


def child_is_refused(handle, change, text):
    child = os.fork()
    if child == 0:
        change()
        try:
            dlbridge.open_handle(handle)
        except OSError as error:
            os._exit(0 if text in str(error) else 2)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_signal_ends_waiting_for_a_silent_maker():
    handle = bytearray(make(3).handle())
    handle[52:68] = os.urandom(16)

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(b"\0dlbridge-" + handle[52:68])
            listener.listen()
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            start = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                dlbridge.open_handle(bytes(handle))
            assert time.monotonic() - start < 5
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("forks", ["", "os.fork(); "])
def test_a_handle_ends_with_the_process_that_made_it(forks):
    # A child that it forked lives on, and serves nothing.
    program = "import dlbridge, numpy, os; x = dlbridge.seal(numpy.arange(3)); " + (
        f"text = x.handle().hex() + ' ' + x.handle(once=True).hex() + '\\n'; {forks}"
        "os.write(1, text.encode()); os.read(0, 1)"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as maker:
        handles = [bytes.fromhex(word) for word in maker.stdout.readline().decode().split()]
        opened = dlbridge.open_handle(handles[0])
        maker.kill()
        maker.wait()
        for handle in handles:
            wanted = f"process {maker.pid}, which made the handle, is alive"
            with pytest.raises(OSError, match=wanted):
                dlbridge.open_handle(handle)
    assert opened["tensor"].tolist() == [0, 1, 2]


def test_a_reader_that_is_killed_leaves_no_descriptor_in_the_sender():
    run("killed", "spawn")


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
    # Those of clusters of earlier tests are closed late.
    assert descriptors() <= before
    os.close(unsealed)


NAMESPACES = """
import ctypes, os, sys
import numpy as np, dlbridge

def first_of_a_namespace():
    # CLONE_NEWPID: the next child is process 1 of a namespace
    if ctypes.CDLL(None).unshare(0x20000000):
        print("no namespace")
        sys.exit()
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert os.getpid() == 1

def opens(value):
    sealed = dlbridge.seal(np.full(3, value))
    assert dlbridge.open_handle(sealed.handle())["tensor"].tolist() == [value] * 3
    return sealed

first_of_a_namespace()
parents = opens(1)
first_of_a_namespace()
opens(2)
assert dlbridge.open_handle(parents.handle())["tensor"].tolist() == [1] * 3
"""


def test_a_child_with_the_number_of_its_parent_opens_handles_of_its_own():
    # From 3.12 on, Python warns of a fork beside a thread.
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", NAMESPACES]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if "no namespace" in done.stdout:
        pytest.skip("this user makes no namespace of processes")
    assert (done.returncode, done.stderr) == (0, "")
