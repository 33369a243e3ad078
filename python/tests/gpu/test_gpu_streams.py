"""Work on one stream that is read on another (right values, and no stream waits for more than it
must), captures of graphs, threads and forks."""

from __future__ import annotations

import os
import threading
import unittest
from collections.abc import Callable

import dlbridge
from gpus import OnGpu

# Enough for the host to be done with its part long before the GPU is.
SIZE, ROUNDS = 8192, 30


class TorchStreams(OnGpu):
    needs = ("torch", "dlbridge_example")

    def setUp(self) -> None:
        self.x = self.torch.zeros(1 << 20, device="cuda")
        self.work = self.torch.ones(SIZE, SIZE, device="cuda")
        self.torch.cuda.synchronize()
        self.producer, self.consumer = (self.torch.cuda.Stream() for _ in range(2))

    def late(self) -> None:
        """Queues much work, after which `x` is 7."""
        for _ in range(ROUNDS):
            self.torch.mm(self.work, self.work)
        self.x.fill_(7)

    def check_pending(self, when: str) -> None:
        if self.producer.query():
            self.skipTest(f"the GPU was done {when}: the test shows nothing")

    def test_a_named_stream_waits_for_the_producers(self) -> None:
        with self.torch.cuda.stream(self.producer):
            self.late()
            self.check_pending("before the import")
            tensor = dlbridge.from_dlpack(self.x, stream=self.consumer.cuda_stream)
            self.check_pending("after the import")
        with self.torch.cuda.stream(self.consumer):
            read = self.torch.from_dlpack(tensor).clone()
        self.consumer.synchronize()
        self.assertTrue((read == 7).all().item(), "read before it was written")

    def test_a_consumer_waits_for_a_named_stream(self) -> None:
        with self.torch.cuda.stream(self.producer):
            self.late()
            tensor = dlbridge.from_dlpack(self.x, stream=self.producer.cuda_stream)
            self.check_pending("after the import")
        with self.torch.cuda.stream(self.consumer):
            # PyTorch passes its current stream.
            read = self.torch.from_dlpack(tensor).clone()
        self.consumer.synchronize()
        self.assertTrue((read == 7).all().item(), "read before it was written")

    def test_a_consumer_waits_for_a_slice_of_rust(self) -> None:
        for _ in range(ROUNDS):
            tensor = self.dlbridge_example.filled(1 << 22, 7)
            with self.torch.cuda.stream(self.consumer):
                read = self.torch.from_dlpack(tensor).clone()
            self.consumer.synchronize()
            self.assertTrue((read == 7).all().item(), "read before it was written")

    def test_a_stream_of_rust_waits_for_the_producers(self) -> None:
        with self.torch.cuda.stream(self.producer):
            self.late()
            self.check_pending("before the call")
            copied = self.dlbridge_example.copied(self.x)
            # Its memory is PyTorch's again, behind the copy.
            self.x.fill_(3)
            read = self.torch.from_dlpack(copied).clone()
        self.producer.synchronize()
        self.assertTrue((read == 7).all().item(), "read before it was written, or afterwards")

    def test_a_copy_to_the_host_waits(self) -> None:
        with self.torch.cuda.stream(self.producer):
            self.late()
            tensor = dlbridge.from_dlpack(self.x)
            read = self.torch.from_dlpack(tensor).cpu()
        self.assertTrue((read == 7).all().item(), "read before it was written")


class CuPyStreams(OnGpu):
    """A second producer and consumer, whose streams are objects with `__cuda_stream__` or `ptr`."""

    needs = ("cupy",)

    def test_a_named_stream_waits_for_the_producers(self) -> None:
        x = self.cupy.zeros(1 << 20, dtype="float32")
        work = self.cupy.ones((SIZE, SIZE), dtype="float32")
        self.cupy.cuda.Device().synchronize()
        producer, consumer = (self.cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        with producer:
            for _ in range(ROUNDS):
                self.cupy.matmul(work, work)
            x.fill(7)
            tensor = dlbridge.from_dlpack(x, stream=consumer.ptr)
            if producer.done:
                self.skipTest("the GPU was done: the test shows nothing")
        with consumer:
            read = self.cupy.from_dlpack(tensor).copy()
        consumer.synchronize()
        self.assertTrue(bool((read == 7).all()), "read before it was written")


class Captures(OnGpu):
    """Graphs: an import or an export of memory does not break the capture of one."""

    needs = ("torch", "dlbridge_example")

    def captured(self, work: Callable[[], object]) -> None:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            self.made = work()
        graph.replay()
        self.torch.cuda.synchronize()

    def setUp(self) -> None:
        self.x = self.torch.full((1 << 10,), 7.0, device="cuda")
        self.torch.cuda.synchronize()

    def test_an_import_before_and_an_export_inside(self) -> None:
        tensor = dlbridge.from_dlpack(self.x)
        self.captured(lambda: self.torch.from_dlpack(tensor) + 1)
        self.assertTrue((self.made == 8).all().item())

    def test_an_import_inside_and_an_export_after(self) -> None:
        self.captured(lambda: dlbridge.from_dlpack(self.x + 1))
        self.assertTrue((self.torch.from_dlpack(self.made) == 8).all().item())

    def test_both_inside(self) -> None:
        self.captured(lambda: self.torch.from_dlpack(dlbridge.from_dlpack(self.x + 1)) + 1)
        self.assertTrue((self.made == 9).all().item())
        self.assertEqual(self.made.sum().item(), 9 << 10)

    def test_both_inside_for_a_named_stream(self) -> None:
        def work() -> object:
            stream = self.torch.cuda.current_stream().cuda_stream
            return self.torch.from_dlpack(dlbridge.from_dlpack(self.x + 1, stream=stream)) + 1

        self.captured(work)
        self.assertTrue((self.made == 9).all().item())

    def test_a_slice_is_dropped_inside(self) -> None:
        made = [self.torch.from_dlpack(self.dlbridge_example.filled(1 << 10, 7))]
        self.torch.cuda.synchronize()

        def work() -> object:
            made.clear()
            return self.x + 1

        self.captured(work)
        self.assertTrue((self.made == 8).all().item())

    def test_a_slice_is_dropped_on_another_thread(self) -> None:
        made = [self.torch.from_dlpack(self.dlbridge_example.filled(1 << 10, 7))]
        self.torch.cuda.synchronize()

        def work() -> object:
            other = threading.Thread(target=made.clear)
            other.start()
            other.join()
            return self.x + 1

        self.captured(work)
        self.assertTrue((self.made == 8).all().item())


class Processes(OnGpu):
    """Threads and forks."""

    needs = ("torch", "dlbridge_example")

    def test_threads_with_streams_of_their_own(self) -> None:
        wrong = []

        def work(value: int) -> None:
            stream = self.torch.cuda.Stream()
            with self.torch.cuda.stream(stream):
                for _ in range(200):
                    x = self.torch.full((1 << 12,), float(value), device="cuda")
                    y = self.torch.from_dlpack(dlbridge.from_dlpack(x))
                    made = self.torch.from_dlpack(self.dlbridge_example.filled(1 << 12, value))
                    if not self.torch.equal(x, y) or not self.torch.equal(x, made):
                        wrong.append(value)

        threads = [threading.Thread(target=work, args=(value,)) for value in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_a_forked_child_drops_what_it_inherited(self) -> None:
        x = self.torch.ones(8, device="cuda")
        made = {
            "an import": lambda: dlbridge.from_dlpack(x),
            "an import for a stream": lambda: dlbridge.from_dlpack(x, stream=2),
            "a slice of Rust": lambda: self.dlbridge_example.filled(8, 7),
            "an import of a slice": lambda: dlbridge.from_dlpack(
                self.dlbridge_example.filled(8, 7)
            ),
        }
        for name, make in made.items():
            inherited = [make()]
            self.torch.cuda.synchronize()
            if (process := os.fork()) == 0:
                inherited.clear()
                os._exit(0)
            self.assertEqual(os.waitpid(process, 0)[1], 0, name)


if __name__ == "__main__":
    unittest.main()
