"""On a GPU: arrays of PyTorch, CuPy and JAX into Rust and back over the same memory; work on one
stream that is read on another (right values, and no stream waits for more than it must); an
operator in Rust with a CUDA kernel, PyTorch's and JAX's, on their streams."""

from __future__ import annotations

import unittest
from typing import Any

import dlbridge
from gpus import framework, installed


class OnlyInterface:
    """An array that speaks nothing but the CUDA array interface."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


class Torch(unittest.TestCase):
    def setUp(self) -> None:
        self.torch = framework("torch")
        if not self.torch.cuda.is_available():
            self.skipTest("this PyTorch has no CUDA")

    def test_there_and_back(self) -> None:
        x = self.torch.arange(6, dtype=self.torch.float32, device="cuda").reshape(2, 3)
        tensor = dlbridge.from_dlpack(x)
        self.assertEqual((tensor.device, tensor.shape), ("cuda:0", (2, 3)))
        self.assertEqual(tensor.data_ptr, x.data_ptr())
        y = self.torch.from_dlpack(tensor)
        self.assertEqual(y.data_ptr(), x.data_ptr())
        y[1, 2] = 99
        self.assertEqual(x[1, 2].item(), 99)

    def test_strides_and_types(self) -> None:
        for dtype in ("float16", "bfloat16", "float64", "uint8", "int64", "bool", "complex64"):
            x = self.torch.ones(4, 6, dtype=getattr(self.torch, dtype), device="cuda")[1:, ::2].T
            tensor = dlbridge.from_dlpack(x)
            self.assertEqual((tensor.dtype, tensor.strides), (dtype, tuple(x.stride())), dtype)
            y = self.torch.from_dlpack(tensor)
            self.assertTrue(self.torch.equal(x, y), dtype)
            self.assertEqual(x.data_ptr(), y.data_ptr(), dtype)

    def test_the_memory_lives_as_long_as_the_tensor(self) -> None:
        x = self.torch.full((1 << 20,), 7, dtype=self.torch.int32, device="cuda")
        before = self.torch.cuda.memory_allocated()
        tensor = dlbridge.from_dlpack(x)
        del x
        self.assertEqual(self.torch.cuda.memory_allocated(), before)
        self.assertTrue((self.torch.from_dlpack(tensor) == 7).all().item())
        del tensor
        self.assertLess(self.torch.cuda.memory_allocated(), before)

    def test_pinned_memory_is_read_by_the_host(self) -> None:
        x = self.torch.arange(4, dtype=self.torch.int64).pin_memory()
        tensor = dlbridge.from_dlpack(x)
        self.assertIn(tensor.device, ("cpu", "cuda_host:0"))
        self.assertEqual(tensor.data_ptr, x.data_ptr())
        self.assertEqual(dlbridge.inspect(x).shape, (4,))
        self.assertEqual(framework("numpy").from_dlpack(tensor).tolist(), [0, 1, 2, 3])


class Allocation:
    """Memory for results, from the allocator that the framework of an array tells."""

    device: str

    def setUp(self) -> None:
        self.torch = installed("torch")
        self.example = installed("dlbridge_example")

    def test_rust_fills_memory_of_the_arrays_framework(self) -> None:
        x = self.torch.ones(1 << 10, 3, device=self.device)
        full = self.example.full_like(x, 2.5)
        self.assertIs(type(full), type(x))
        self.assertEqual((full.device, full.shape, full.dtype), (x.device, x.shape, x.dtype))
        self.assertTrue((full == 2.5).all().item())
        self.assertTrue((x == 1).all().item())
        full += 1
        self.assertTrue((dlbridge_torch(self.torch, full) == 3.5).all().item())

    def test_each_result_has_memory_of_its_own(self) -> None:
        x = self.torch.ones(8, device=self.device)
        first, second = (self.example.full_like(x, value) for value in (1, 2))
        self.assertNotEqual(first.data_ptr(), second.data_ptr())
        self.assertEqual((first.sum().item(), second.sum().item()), (8, 16))


def dlbridge_torch(torch: Any, x: Any) -> Any:
    """The same memory, by way of a `dlbridge.Tensor`."""
    return torch.from_dlpack(dlbridge.from_dlpack(x))


class AllocationOnTheHost(Allocation, unittest.TestCase):
    """What shows without a GPU."""

    device = "cpu"


class AllocationOnAGpu(Allocation, unittest.TestCase):
    device = "cuda"

    def setUp(self) -> None:
        framework("torch")
        super().setUp()
        if not self.torch.cuda.is_available():
            self.skipTest("this PyTorch has no CUDA")
        if not hasattr(self.example, "filled"):
            self.skipTest("the example extension is built without CUDA")

    def test_the_caching_allocator_makes_it_and_gets_it_back(self) -> None:
        cuda = self.torch.cuda
        x = self.torch.ones(1 << 20, device="cuda")
        before = cuda.memory_allocated()
        full = self.example.full_like(x, 7)
        self.assertEqual(cuda.memory_allocated() - before, full.nbytes)
        segments = cuda.memory_snapshot()
        address = full.data_ptr()
        inside = [s for s in segments if s["address"] <= address < s["address"] + s["total_size"]]
        self.assertEqual(len(inside), 1, "in one segment of the caching allocator")
        del full
        self.assertEqual(cuda.memory_allocated(), before)
        again = self.example.empty_like(x)
        self.assertEqual(again.data_ptr(), address, "cached, and given again")

    def test_a_slice_of_rust_is_an_array_of_every_framework(self) -> None:
        x = self.example.filled(1 << 10, 7)
        self.assertEqual(x.device, "cuda:0")
        y = self.torch.from_dlpack(x)
        self.assertEqual((y.data_ptr(), y.sum().item()), (x.data_ptr, 7 << 10))
        z = self.example.convert(y, x)
        self.assertIsInstance(z, self.torch.Tensor)
        self.assertEqual(z.data_ptr(), x.data_ptr)


class CuPy(unittest.TestCase):
    def setUp(self) -> None:
        self.cupy = framework("cupy")

    def test_there_and_back(self) -> None:
        x = self.cupy.arange(6, dtype="float32").reshape(2, 3)
        tensor = dlbridge.from_dlpack(x)
        self.assertEqual((tensor.device, tensor.data_ptr), ("cuda:0", x.data.ptr))
        y = self.cupy.from_dlpack(tensor)
        self.assertEqual(y.data.ptr, x.data.ptr)
        y += 1
        self.assertEqual(x.get().tolist(), [[1, 2, 3], [4, 5, 6]])

    def test_the_cuda_array_interface_is_taken(self) -> None:
        x = self.cupy.arange(6, dtype="int32").reshape(2, 3)[:, ::2]
        tensor = dlbridge.from_dlpack(OnlyInterface(x))
        self.assertEqual((tensor.device, tensor.data_ptr), ("cuda:0", x.data.ptr))
        self.assertEqual((tensor.shape, tensor.strides), ((2, 2), (3, 2)))
        self.assertEqual(self.cupy.from_dlpack(tensor).get().tolist(), x.get().tolist())

    def test_managed_memory_is_read_by_the_host(self) -> None:
        memory = self.cupy.cuda.malloc_managed(16)
        x = self.cupy.ndarray((4,), dtype="int32", memptr=memory)
        x[...] = self.cupy.arange(4)
        self.cupy.cuda.get_current_stream().synchronize()
        tensor = dlbridge.from_dlpack(x)
        if tensor.device == "cuda:0":
            self.skipTest("this CuPy does not say that memory is managed")
        self.assertEqual((tensor.device, tensor.data_ptr), ("cuda_managed:0", x.data.ptr))
        self.assertEqual(framework("numpy").from_dlpack(tensor).tolist(), [0, 1, 2, 3])


class Jax(unittest.TestCase):
    def setUp(self) -> None:
        self.jax = framework("jax")
        try:
            self.device = self.jax.devices("cuda")[0]
        except RuntimeError as error:
            self.skipTest(f"this JAX has no CUDA: {error}")

    def test_there_and_back(self) -> None:
        x = self.jax.device_put(self.jax.numpy.arange(6.0).reshape(2, 3), self.device)
        x.block_until_ready()
        tensor = dlbridge.from_dlpack(x)
        self.assertEqual((tensor.device, tensor.shape), ("cuda:0", (2, 3)))
        self.assertEqual(tensor.data_ptr, x.unsafe_buffer_pointer())
        y = self.jax.dlpack.from_dlpack(tensor)
        self.assertEqual(y.unsafe_buffer_pointer(), x.unsafe_buffer_pointer())
        self.assertEqual(y.tolist(), x.tolist())


if __name__ == "__main__":
    unittest.main()


# Enough for the host to be done with its part long before the GPU is.
SIZE, ROUNDS = 8192, 30


class TorchStreams(unittest.TestCase):
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


class CuPyStreams(unittest.TestCase):
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


class TorchOperator(unittest.TestCase):
    def setUp(self) -> None:
        self.torch = framework("torch")
        if not self.torch.cuda.is_available():
            self.skipTest("this PyTorch has no CUDA")
        self.scale = installed("cuda_operators").scale

    def test_values_and_gradients(self) -> None:
        x = self.torch.arange(1000.0, device="cuda").reshape(10, 100).requires_grad_()
        y = self.scale(x, 3.0)
        self.assertEqual((y.device, y.shape), (x.device, x.shape))
        self.assertTrue(self.torch.equal(y, x * 3))
        y.sum().backward()
        self.assertTrue((x.grad == 3).all().item())
        self.assertEqual(self.scale(x[:0], 3.0).shape, (0, 100))

    def test_it_is_ordered_on_the_current_stream(self) -> None:
        stream, x = self.torch.cuda.Stream(), self.torch.zeros(1 << 20, device="cuda")
        work = self.torch.ones(SIZE, SIZE, device="cuda")
        self.scale(x, 1.0)  # the first call loads the kernel
        self.torch.cuda.synchronize()
        with self.torch.cuda.stream(stream):
            for _ in range(ROUNDS):
                self.torch.mm(work, work)
            x.fill_(7)
            y = self.scale(x, 2.0)
            pending = not stream.query()
            z = y + 1
        stream.synchronize()
        self.assertTrue((z == 15).all().item(), "on another stream")
        if not pending:
            self.skipTest("the GPU was done already: nothing is shown")

    def test_a_compiler_calls_it(self) -> None:
        function = self.torch.compile(
            lambda x: self.scale.torch(x, 2.0) + 1, backend="aot_eager", fullgraph=True
        )
        x = self.torch.ones(3, 4, device="cuda")
        self.assertTrue((function(x) == 3).all().item())

    def test_tensors_of_any_strides(self) -> None:
        x = self.torch.arange(12.0, device="cuda").reshape(3, 4)
        for view in (x.t(), x[:, ::2], x[:1].expand(5, 4), x[0, 1]):
            self.assertTrue(self.torch.equal(self.scale(view, 2.0), view * 2))
        backward = installed("cuda_operators").scale_backward
        self.assertTrue(self.torch.equal(backward(x, x[:1], 2.0), x * 2))

    def test_a_graph_records_it_with_its_gradient(self) -> None:
        torch = self.torch
        x = torch.ones(4, device="cuda", requires_grad=True)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.scale(x, 2.0).sum().backward()  # the first call loads the kernel
        torch.cuda.current_stream().wait_stream(stream)
        graph, x.grad = torch.cuda.CUDAGraph(), None
        with torch.cuda.graph(graph):
            y = self.scale(x, 2.0)
            y.sum().backward()
        with torch.no_grad():
            x.fill_(5)
        graph.replay()
        self.assertTrue((y == 10).all().item() and (x.grad == 2).all().item())

    def test_what_it_does_not_take_is_refused(self) -> None:
        x = self.torch.ones(3, 4, device="cuda")
        with self.assertRaisesRegex(RuntimeError, "found one on cpu; use x.to"):
            installed("cuda_operators").scale_backward(x, x.cpu(), 2.0)


class JaxOperator(unittest.TestCase):
    def setUp(self) -> None:
        self.jax = framework("jax")
        if self.jax.default_backend() != "gpu":
            self.skipTest("this JAX has no CUDA")
        self.scale = installed("cuda_operators").scale

    def test_values_and_gradients(self) -> None:
        x = self.jax.numpy.arange(1000.0).reshape(10, 100)
        y = self.jax.jit(lambda x: self.scale(x * 1, 3.0) + 1)(x)
        self.assertTrue((y == x * 3 + 1).all())
        gradient = self.jax.grad(lambda x: self.scale(x, 3.0).sum())(x)
        self.assertTrue((gradient == 3).all())
        mapped = self.jax.vmap(lambda x: self.scale(x, 3.0))(x)
        self.assertTrue((mapped == x * 3).all())

    def test_it_is_ordered_behind_the_work_of_before(self) -> None:
        work = self.jax.numpy.ones((SIZE, SIZE))

        @self.jax.jit
        def late(work):
            for _ in range(ROUNDS):
                work = work @ work / SIZE
            return self.scale(work, 2.0) + 1

        self.assertTrue((late(work) == 3).all())
