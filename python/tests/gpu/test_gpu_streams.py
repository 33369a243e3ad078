"""Work on one stream, read on another: right values, and no stream waits for more than it must."""

from __future__ import annotations

import unittest

import dlbridge
from gpus import framework, installed

# Enough for the host to be done with its part long before the GPU is.
SIZE, ROUNDS = 8192, 30


class Torch(unittest.TestCase):
    def setUp(self) -> None:
        self.torch = framework("torch")
        if not self.torch.cuda.is_available():
            self.skipTest("this PyTorch has no CUDA")
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
            self.skipTest(f"the GPU was done already {when}: nothing is shown")

    def test_our_stream_waits_for_the_producers(self) -> None:
        with self.torch.cuda.stream(self.producer):
            self.late()
            self.check_pending("before the tensor was taken")
            tensor = dlbridge.from_dlpack(self.x, stream=self.consumer.cuda_stream)
            self.check_pending("when the tensor was taken")
        with self.torch.cuda.stream(self.consumer):
            read = self.torch.from_dlpack(tensor).clone()
        self.consumer.synchronize()
        self.assertTrue((read == 7).all().item(), "read before it was written")

    def test_a_consumer_waits_for_our_stream(self) -> None:
        with self.torch.cuda.stream(self.producer):
            self.late()
            tensor = dlbridge.from_dlpack(self.x, stream=self.producer.cuda_stream)
            self.check_pending("when the tensor was taken")
        with self.torch.cuda.stream(self.consumer):
            # PyTorch asks with its current stream.
            read = self.torch.from_dlpack(tensor).clone()
        self.consumer.synchronize()
        self.assertTrue((read == 7).all().item(), "read before it was written")

    def test_a_consumer_waits_for_a_slice_of_rust(self) -> None:
        example = installed("dlbridge_example")
        if not hasattr(example, "filled"):
            self.skipTest("the example extension is built without CUDA")
        for _ in range(ROUNDS):
            tensor = example.filled(1 << 22, 7)
            with self.torch.cuda.stream(self.consumer):
                read = self.torch.from_dlpack(tensor).clone()
            self.consumer.synchronize()
            self.assertTrue((read == 7).all().item(), "read before it was written")

    def test_a_copy_to_the_host_waits(self) -> None:
        with self.torch.cuda.stream(self.producer):
            self.late()
            tensor = dlbridge.from_dlpack(self.x)
            read = self.torch.from_dlpack(tensor).cpu()
        self.assertTrue((read == 7).all().item(), "read before it was written")


class CuPy(unittest.TestCase):
    """A second producer and consumer, whose streams are objects with `__cuda_stream__` or `ptr`."""

    def setUp(self) -> None:
        self.cupy = framework("cupy")
        self.x = self.cupy.zeros(1 << 20, dtype="float32")
        self.work = self.cupy.ones((SIZE, SIZE), dtype="float32")
        self.cupy.cuda.Device().synchronize()
        self.streams = [self.cupy.cuda.Stream(non_blocking=True) for _ in range(2)]

    def test_our_stream_waits_for_the_producers(self) -> None:
        producer, consumer = self.streams
        with producer:
            for _ in range(ROUNDS):
                self.cupy.matmul(self.work, self.work)
            self.x.fill(7)
            tensor = dlbridge.from_dlpack(self.x, stream=consumer.ptr)
            if producer.done:
                self.skipTest("the GPU was done already: nothing is shown")
        with consumer:
            read = self.cupy.from_dlpack(tensor).copy()
        consumer.synchronize()
        self.assertTrue(bool((read == 7).all()), "read before it was written")


if __name__ == "__main__":
    unittest.main()
