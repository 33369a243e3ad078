"""`examples/gateway`: the real server with real workers, which are killed, and hostile ones."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("gateway"),
    pytest.mark.skipif(sys.platform != "linux", reason="channels are for Linux"),
]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/gateway"
ROW = 1024
HOSTILE = Path(__file__).with_name("gateway_worker.py")


@pytest.fixture(scope="module")
def program():
    """The gateway, as it is now."""
    command = ["cargo", "build", "--quiet", "--package", "dlbridge-example-gateway"]
    built = subprocess.run(
        [*command, "--message-format", "json"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    messages = map(json.loads, built.stdout.splitlines())
    (found,) = {message["executable"] for message in messages if message.get("executable")}
    return found


@pytest.fixture(scope="module")
def model():
    """The model by NumPy."""
    sys.path.insert(0, str(FOLDER))
    try:
        import model
    finally:
        sys.path.pop(0)
    return model.numpy_model()


class Gateway:
    def __init__(self, program, *options, **variables):
        command = [program, "--address", "127.0.0.1:0", "--python", sys.executable]
        self.process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"RUST_BACKTRACE": "0"} | variables,
        )
        self.errors = ""
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        line = self.process.stdout.readline()
        address = re.fullmatch(r"listening on (.+):(\d+)\n", line)
        assert address, self.errors
        self.address = (address[1], int(address[2]))

    def _read(self):
        for line in self.process.stderr:
            self.errors += line

    def connect(self):
        return http.client.HTTPConnection(*self.address, timeout=60)

    def post(self, path, body, **headers):
        client = self.connect()
        client.request("POST", path, body, headers)
        with client.getresponse() as answer:
            return answer.status, answer.read()

    def ask(self, x, output="scores", client=None):
        client = client or self.connect()
        client.request("POST", f"/{output}", x.tobytes())
        answer = client.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        shape = [int(extent) for extent in answer.headers["X-Shape"].split(",")]
        return np.frombuffer(body, answer.headers["X-Dtype"]).reshape(shape)

    def workers(self):
        while True:
            tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
            # A thread that ends between the two calls has no such file.
            with suppress(FileNotFoundError, ProcessLookupError):
                children = " ".join((task / "children").read_text() for task in tasks).split()
                return sorted(map(int, children))

    def held(self):
        """Descriptors and mapped memory files of all its processes."""
        processes = [self.process.pid, *self.workers()]
        descriptors = [len(os.listdir(f"/proc/{process}/fd")) for process in processes]
        maps = [Path(f"/proc/{process}/maps").read_text() for process in processes]
        return descriptors, sum(text.count("memfd:dlbridge") for text in maps)

    def stop(self, number=signal.SIGTERM):
        workers = self.workers()
        self.process.send_signal(number)
        status = self.process.wait(60)
        self.process.stdout.close()
        # Its end is read when the workers have ended as well.
        self.reader.join(60)
        self.process.stderr.close()
        assert "panicked" not in self.errors, self.errors
        within(10, lambda: not any(map(lives, workers)))
        return status


def cpu(gateway):
    # As clock_getcpuclockid(3) does it.
    return time.clock_gettime(~gateway.process.pid << 3 | 2)


def lives(process):
    with suppress(OSError):
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        # One that has ended, and that its parent has not waited for yet, is in one of these.
        return state not in "ZX"
    return False


@contextmanager
def running(program, *options, **variables):
    gateway = Gateway(program, *options, **variables)
    try:
        yield gateway
    finally:
        if gateway.process.returncode is None:
            assert gateway.stop() == 0


def within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def rows(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, ROW // 4)).astype("f4")


def check(gateway, model, x, client=None):
    expected = model(x)
    scores = gateway.ask(x, "scores", client)
    assert scores.dtype == "f4"
    np.testing.assert_allclose(scores, expected["scores"], rtol=1e-3, atol=1e-4)
    labels = gateway.ask(x, "labels", client)
    assert labels.dtype == "i8"
    np.testing.assert_array_equal(labels, scores.argmax(axis=1))


def test_answers_are_those_of_numpy(program, model):
    with running(program) as gateway:
        client = gateway.connect()
        # From a small message to a batch of its own.
        for count in (1, 7, 255, 256, 257, 4096):
            check(gateway, model, rows(count, count), client)
        errors = []

        def ask(seed):
            client = gateway.connect()
            try:
                for count in range(1, 20):
                    check(gateway, model, rows(count * 5, seed * 100 + count), client)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ask, args=[seed]) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors


def test_the_workers_run_onnxruntime(program):
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    with running(program) as gateway:
        within(60, lambda: gateway.errors.count('runs "onnxruntime"') == 2)


def test_killed_workers_are_replaced_and_requests_are_answered(program, model):
    with running(program) as gateway:
        before = gateway.workers()
        assert len(before) == 2
        stop = threading.Event()
        errors, count = [], [0]

        def ask():
            try:
                while not stop.is_set():
                    check(gateway, model, rows(300))
                    count[0] += 1
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        within(60, lambda: count[0] > 3)
        os.kill(before[0], signal.SIGKILL)
        within(60, lambda: before[0] not in gateway.workers() and len(gateway.workers()) == 2)
        count[0] = 0
        within(60, lambda: count[0] > 3)
        stop.set()
        for thread in threads:
            thread.join()
        assert not errors
        idle = gateway.workers()[0]
        os.kill(idle, signal.SIGKILL)
        within(60, lambda: idle not in gateway.workers() and len(gateway.workers()) == 2)
        check(gateway, model, rows(3))


def test_bad_requests_are_refused(program, model):
    with running(program, "--workers", "1") as gateway:
        good = rows(1).tobytes()
        for path, body, headers, status, text in [
            ("/scores", good[:-1], {}, 400, b"of 256 float32 (1024 bytes), found 1023"),
            ("/scores", b"", {}, 400, b"of 256 float32 (1024 bytes), found 0"),
            ("/scores", good, {"X-Dtype": "float64"}, 415, b"expected float32, found float64"),
            ("/scores", good, {"X-Dtype": "f\xff"}, 415, b"dtype"),
            ("/scores", b"", {"Content-Length": "9" * 18}, 413, b"expected at most"),
            ("/scores", b"", {"Content-Length": "9" * 99}, 400, b""),
            ("/scores", b"", {"Content-Length": "+1024"}, 400, b""),
            ("/scores", iter([good]), {}, 411, b"Content-Length"),
            ("/other", good, {}, 404, b"expected POST /scores or /labels"),
        ]:
            found, said = gateway.post(path, body, **headers)
            assert (found, text in said) == (status, True), said
        start = b"POST /scores HTTP/1.1\r\nHost: x\r\n"
        length = b"Content-Length: 1024\r\n"
        chunked = b"Transfer-Encoding: chunked\r\n"
        for message, status in [
            (b"", b""),
            (b"POST", b""),
            (b"\0" * 10_000, b"HTTP/1.1 400 "),
            (start + b"A: b\r\n" * 200 + b"\r\n", b"HTTP/1.1 431 "),
            (start + length + b"Content-Length: 2048\r\n\r\n", b"HTTP/1.1 400 "),
            (start + chunked * 2 + b"\r\n", b"HTTP/1.1 411 "),
            (start + chunked + length + b"\r\n", b"HTTP/1.1 411 "),
            (start + length + chunked + b"\r\n", b"HTTP/1.1 411 "),
            # Clients that go before the end of the body, few rows and many.
            (start + length + b"\r\n" + good[:100], b"HTTP/1.1 400 "),
            (start + b"Content-Length: 1048576\r\n\r\n" + good, b"HTTP/1.1 400 "),
        ]:
            with socket.create_connection(gateway.address) as client:
                client.sendall(message)
                client.shutdown(socket.SHUT_WR)
                assert client.recv(13) == status, message[:100]
        # A head that ends in bare line feeds: the rows begin behind it.
        with socket.create_connection(gateway.address) as client:
            head = (start + length + b"Connection: close\r\n\r\n").replace(b"\r\n", b"\n")
            client.sendall(head + good)
            answered = client.makefile("rb").read()
        assert answered.startswith(b"HTTP/1.1 200 ")
        scores = np.frombuffer(answered.partition(b"\r\n\r\n")[2], "f4")
        np.testing.assert_allclose(scores, model(rows(1))["scores"][0], rtol=1e-3, atol=1e-4)
        check(gateway, model, rows(2))


def test_silent_clients_cut_nobody_off(program, model):
    with running(program, "--workers", "1") as gateway:
        tasks = len(os.listdir(f"/proc/{gateway.process.pid}/task"))
        clients = [socket.create_connection(gateway.address) for _ in range(300)]
        for client in clients[::2]:
            client.sendall(b"POST /scores HTTP/1.1\r\nA")
        check(gateway, model, rows(2))
        assert len(os.listdir(f"/proc/{gateway.process.pid}/task")) == tasks
        for client in clients:
            client.close()


def test_a_gateway_without_descriptors_waits_for_some(program, model):
    with running(program, "--workers", "1") as gateway:
        check(gateway, model, rows(2))
        held = len(os.listdir(f"/proc/{gateway.process.pid}/fd"))
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (held + 10, held + 10))
        clients = [socket.create_connection(gateway.address) for _ in range(30)]
        within(60, lambda: len(os.listdir(f"/proc/{gateway.process.pid}/fd")) == held + 10)
        # Trying again and again would take all of the time.
        before = cpu(gateway)
        time.sleep(1)
        assert cpu(gateway) - before < 0.5
        for client in clients:
            client.close()
        check(gateway, model, rows(2))


def test_a_full_gateway_refuses_before_the_body(program, model):
    with running(program, "--workers", "1") as gateway:
        head = b"POST /scores HTTP/1.1\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n" % (
            64 << 20
        )
        clients = [socket.create_connection(gateway.address) for _ in range(4)]
        for client in clients:
            client.sendall(head)
            assert client.recv(100).startswith(b"HTTP/1.1 100 ")
        status, text = gateway.post("/scores", rows(1).tobytes())
        assert (status, b"full" in text) == (503, True)
        for client in clients:
            client.close()
        within(60, lambda: gateway.post("/scores", rows(1).tobytes())[0] == 200)
        check(gateway, model, rows(2))


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("bytes", "a frame of kind"),
        ("file", "found a file on disk"),
        ("exit", "the end of the stream"),
        ("silent", "expected an answer in time, found none"),
        ("dtype", "scores: expected float32[1, 10], found float64[1, 10]"),
        ("shape", "scores: expected float32[1, 10], found float32[2, 10]"),
        ("missing", "labels"),
        ("id", "expected the answer to batch"),
    ],
)
def test_answers_of_hostile_workers_are_refused(program, fault, text):
    options = ["--worker", str(HOSTILE), "--patience", "5", "--workers", "1"]
    with running(program, *options, FAULT=fault) as gateway:
        status, said = gateway.post("/scores", rows(1).tobytes())
        assert (status, said) == (502, b"2 workers failed to answer"), gateway.errors
        assert gateway.errors.count(text) == 2, gateway.errors


def test_what_the_model_says_is_told_and_its_worker_goes_on(program):
    with running(program, "--worker", str(HOSTILE), "--workers", "1", FAULT="error") as gateway:
        before = gateway.workers()
        for _ in range(3):
            assert gateway.post("/scores", rows(1).tobytes()) == (502, b"the model failed: why")
        assert gateway.workers() == before


def test_a_gateway_without_workers_says_why(program):
    command = [program, "--address", "127.0.0.1:0", "--python", sys.executable]
    done = subprocess.run(
        [*command, "--worker", "no_such.py"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "a worker could not be started" in done.stderr


def test_nothing_is_leaked(program, model):
    with running(program) as gateway:

        def load():
            client = gateway.connect()
            for count in [1, 300] * 20:
                gateway.ask(rows(count), client=client)
            client.close()

        for _ in range(2):
            load()
        time.sleep(0.5)
        before = gateway.held()
        for _ in range(5):
            load()
        within(60, lambda: gateway.held() == before)
        # Requests that were admitted are answered, others are refused.
        statuses = []

        def ask():
            with suppress(OSError, http.client.HTTPException):
                while True:
                    statuses.append(gateway.post("/scores", rows(20_000).tobytes())[0])

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        within(60, lambda: len(statuses) > 3)
        assert gateway.stop() == 0
        for thread in threads:
            thread.join()
        assert 200 in statuses, statuses


def test_the_workers_of_a_killed_gateway_end(program):
    gateway = Gateway(program)
    gateway.ask(rows(300))
    assert gateway.stop(signal.SIGKILL) == -signal.SIGKILL
