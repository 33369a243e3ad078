"""Arrays of PyTorch, CuPy, JAX and numba on a GPU into Rust and back, over the same memory;
copies; results in memory of the caller's framework."""

from __future__ import annotations

import time
import unittest
from typing import Any

import dlbridge
from gpus import OnGpu, installed


class OnlyInterface:
    """An array that has only `__cuda_array_interface__`."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


class Torch(OnGpu):
    needs = ("torch", "numpy")

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
        self.assertEqual(self.numpy.from_dlpack(tensor).tolist(), [0, 1, 2, 3])

    def test_a_tensor_that_requires_grad_stays_marked(self) -> None:
        x = self.torch.ones(3, device="cuda", requires_grad=True)
        stream = self.torch.cuda.Stream()
        for tensor in (dlbridge.from_dlpack(x), dlbridge.from_dlpack(x, stream=stream)):
            self.assertTrue(tensor.requires_grad)

    def test_a_named_stream_costs_little(self) -> None:
        x, stream = self.torch.ones(3, device="cuda"), self.torch.cuda.Stream().cuda_stream
        rounds = 10_000
        dlbridge.from_dlpack(x, stream=stream)
        began = time.perf_counter()
        for _ in range(rounds):
            dlbridge.from_dlpack(x, stream=stream)
        each = (time.perf_counter() - began) / rounds
        # 32 us by `__dlpack__`, 4 us by the exchange table; other groups run beside this one.
        self.assertLess(each, 16e-6)


class Copies(OnGpu):
    """Copies that dlbridge makes, by the CUDA driver alone."""

    needs = ("dlbridge_example", "numpy")

    def setUp(self) -> None:
        self.x = dlbridge.from_dlpack(self.dlbridge_example.filled(6, 7))

    def test_to_the_host(self) -> None:
        for options in ({}, {"copy": True}, {"stream": -1}):
            host = dlbridge.from_dlpack(self.x, device="cpu", **options)
            self.assertEqual((host.device, host.tolist()), ("cpu", [7] * 6))
        with self.assertRaises(BufferError):
            dlbridge.from_dlpack(self.x, device="cpu", copy=False)

    def test_the_advice_of_an_error_helps(self) -> None:
        with self.assertRaises(BufferError) as raised:
            self.x.tolist()
        self.assertIn('dlbridge.from_dlpack(x, device="cpu")', str(raised.exception))
        self.assertEqual(dlbridge.from_dlpack(self.x, device="cpu").tolist(), [7] * 6)

    def test_a_consumer_asks_for_the_host(self) -> None:
        array = self.numpy.from_dlpack(self.x, device="cpu")
        self.assertEqual(array.tolist(), [7] * 6)
        again = dlbridge.from_dlpack(self.x.__dlpack__(dl_device=(1, 0), max_version=(1, 3)))
        self.assertEqual(again.tolist(), [7] * 6)

    def test_of_strided_memory(self) -> None:
        for part in (self.x[::2], self.x.reshape(2, 3).T, self.x[1:1]):
            host = dlbridge.from_dlpack(part, device="cpu")
            self.assertEqual((host.shape, host.contiguous), (part.shape, True))
            self.assertEqual(set(host.reshape(-1).tolist()), {7} if part.size else set())

    def test_on_the_device(self) -> None:
        for part in (self.x, self.x[::2], self.x.reshape(2, 3).T):
            copy = dlbridge.from_dlpack(part, copy=True)
            self.assertEqual((copy.device, copy.shape), (part.device, part.shape))
            self.assertNotEqual(copy.data_ptr, part.data_ptr)
            host = dlbridge.from_dlpack(copy, device="cpu").reshape(-1)
            self.assertEqual(set(host.tolist()), {7})


class CopiesOfTorch(OnGpu):
    needs = ("torch",)

    def test_to_the_host(self) -> None:
        x = self.torch.arange(12.0, device="cuda").reshape(3, 4)
        for view in (x, x.T, x[:, ::2], x[1:, 1:], x.expand(2, 3, 4), x[0:0]):
            host = dlbridge.from_dlpack(view, device="cpu")
            self.assertEqual(host.tolist(), view.tolist())

    def test_they_wait_for_pending_work(self) -> None:
        stream = self.torch.cuda.Stream()
        work = self.torch.ones(4096, 4096, device="cuda")
        self.torch.cuda.synchronize()
        with self.torch.cuda.stream(stream):
            for _ in range(30):
                work = work @ work / 4096
            x = (work[0, :3] * 7).contiguous()
            host = dlbridge.from_dlpack(x, device="cpu")
        self.assertEqual(host.tolist(), [7, 7, 7])

    def test_on_the_device(self) -> None:
        x = self.torch.arange(6.0, device="cuda").reshape(2, 3).T
        copy = dlbridge.from_dlpack(x, copy=True)
        self.assertNotEqual(copy.data_ptr, x.data_ptr())
        self.assertTrue(self.torch.equal(self.torch.from_dlpack(copy), x))
        own = dlbridge.from_dlpack(dlbridge.from_dlpack(x), copy=True)
        self.assertNotEqual(own.data_ptr, x.data_ptr())
        self.assertTrue(self.torch.equal(self.torch.from_dlpack(own), x))


class Allocation:
    """Results in memory from the allocator of the array's framework."""

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
        there = self.torch.from_dlpack(dlbridge.from_dlpack(full))
        self.assertTrue((there == 3.5).all().item())

    def test_each_result_has_memory_of_its_own(self) -> None:
        x = self.torch.ones(8, device=self.device)
        first, second = (self.example.full_like(x, value) for value in (1, 2))
        self.assertNotEqual(first.data_ptr(), second.data_ptr())
        self.assertEqual((first.sum().item(), second.sum().item()), (8, 16))


class AllocationOnTheHost(Allocation, unittest.TestCase):
    """The part that needs no GPU."""

    device = "cpu"


class AllocationOnAGpu(Allocation, OnGpu):
    device = "cuda"
    needs = ("torch", "dlbridge_example")

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
        self.assertEqual(again.data_ptr(), address, "cached, and used again")

    def test_memory_is_written_on_the_current_stream(self) -> None:
        stream, x = self.torch.cuda.Stream(), self.torch.ones(1 << 20, device="cuda")
        work = self.torch.ones(4096, 4096, device="cuda")
        self.torch.cuda.synchronize()
        for _ in range(20):
            with self.torch.cuda.stream(stream):
                old = x * 3
                for _ in range(5):
                    self.torch.mm(work, work)
                old.fill_(3)
                # Its memory is used again, in the order of this stream.
                del old
                full = self.example.full_like(x, 7)
                read = full.clone()
            stream.synchronize()
            self.assertTrue((read == 7).all().item())

    def test_an_allocation_that_fails_is_pytorchs_error(self) -> None:
        x = self.torch.ones(1, device="cuda").expand(1 << 42)
        with self.assertRaises(self.torch.OutOfMemoryError):
            self.example.empty_like(x)


class CuPy(OnGpu):
    needs = ("cupy", "dlbridge_example", "numpy")

    def test_there_and_back(self) -> None:
        x = self.cupy.arange(6, dtype="float32").reshape(2, 3)
        tensor = dlbridge.from_dlpack(x)
        self.assertEqual((tensor.device, tensor.data_ptr), ("cuda:0", x.data.ptr))
        y = self.cupy.from_dlpack(tensor)
        self.assertEqual(y.data.ptr, x.data.ptr)
        y += 1
        self.assertEqual(x.get().tolist(), [[1, 2, 3], [4, 5, 6]])

    def test_reversed_views(self) -> None:
        x = self.cupy.arange(6, dtype="float32").reshape(2, 3)
        for view in (x[::-1], x[:, ::-1], x[::-1, ::-2]):
            tensor = dlbridge.from_dlpack(view)
            self.assertEqual(tensor.data_ptr, view.data.ptr)
            host = dlbridge.from_dlpack(view, device="cpu")
            self.assertEqual(host.tolist(), view.get().tolist())

    def test_results_are_cupys(self) -> None:
        x = self.cupy.ones((4, 3), dtype="float32")
        stream = self.cupy.cuda.Stream(non_blocking=True)
        for current in (self.cupy.cuda.Stream.null, stream):
            with current:
                full = self.dlbridge_example.full_like(x, 2.5)
                self.assertIsInstance(full, self.cupy.ndarray)
                self.assertTrue(bool((full == 2.5).all()))
                empty = self.dlbridge_example.empty_like(x)
                self.assertEqual((empty.shape, empty.dtype), (x.shape, x.dtype))

    def test_a_slice_of_rust_becomes_its_array(self) -> None:
        made = self.dlbridge_example.filled(6, 7)
        y = self.dlbridge_example.convert(made, self.cupy.ones(1))
        self.assertIsInstance(y, self.cupy.ndarray)
        self.assertEqual((y.data.ptr, y.get().tolist()), (made.data_ptr, [7] * 6))

    def test_the_cuda_array_interface_is_read(self) -> None:
        x = self.cupy.arange(6, dtype="int32").reshape(2, 3)[:, ::2]
        tensor = dlbridge.from_dlpack(OnlyInterface(x))
        self.assertEqual((tensor.device, tensor.data_ptr), ("cuda:0", x.data.ptr))
        self.assertEqual((tensor.shape, tensor.strides), ((2, 2), (3, 2)))
        self.assertEqual(self.cupy.from_dlpack(tensor).get().tolist(), x.get().tolist())

    def test_the_cuda_array_interface_is_written(self) -> None:
        x = dlbridge.from_dlpack(self.dlbridge_example.filled(6, 7))[::2]
        y = self.cupy.asarray(OnlyInterface(x))
        self.assertEqual((y.data.ptr, y.get().tolist()), (x.data_ptr, [7] * 3))

    def test_managed_memory_is_read_by_the_host(self) -> None:
        memory = self.cupy.cuda.malloc_managed(16)
        x = self.cupy.ndarray((4,), dtype="int32", memptr=memory)
        x[...] = self.cupy.arange(4)
        self.cupy.cuda.get_current_stream().synchronize()
        tensor = dlbridge.from_dlpack(x)
        if tensor.device == "cuda:0":
            self.skipTest("this CuPy does not say that memory is managed")
        self.assertEqual((tensor.device, tensor.data_ptr), ("cuda_managed:0", x.data.ptr))
        self.assertEqual(self.numpy.from_dlpack(tensor).tolist(), [0, 1, 2, 3])


class Numba(OnGpu):
    needs = ("numba.cuda", "dlbridge_example")

    def test_there_and_back(self) -> None:
        made = dlbridge.from_dlpack(self.dlbridge_example.filled(6, 7))
        array = self.cuda.as_cuda_array(made)
        self.assertEqual(array.copy_to_host().tolist(), [7] * 6)
        again = dlbridge.from_dlpack(array)
        self.assertEqual(again.data_ptr, made.data_ptr)


class Jax(OnGpu):
    needs = ("jax", "dlbridge_example")

    def test_there_and_back(self) -> None:
        x = self.jax.numpy.arange(6.0).reshape(2, 3).block_until_ready()
        tensor = dlbridge.from_dlpack(x)
        self.assertEqual((tensor.device, tensor.shape), ("cuda:0", (2, 3)))
        self.assertEqual(tensor.data_ptr, x.unsafe_buffer_pointer())
        y = self.jax.dlpack.from_dlpack(tensor)
        self.assertEqual(y.unsafe_buffer_pointer(), x.unsafe_buffer_pointer())
        self.assertEqual(y.tolist(), x.tolist())

    def test_copies_to_the_host(self) -> None:
        x = self.jax.numpy.arange(6.0)
        for options in ({}, {"stream": -1}):
            host = dlbridge.from_dlpack(x, device="cpu", **options)
            self.assertEqual((host.device, host.tolist()), ("cpu", x.tolist()))

    def test_no_stream_is_named(self) -> None:
        x = self.jax.numpy.arange(6.0)
        self.assertEqual(dlbridge.from_dlpack(x, stream=-1).device, "cuda:0")

    def test_results_are_jaxs(self) -> None:
        x = self.jax.numpy.ones((4, 3))
        full = self.dlbridge_example.full_like(x, 2.5)
        self.assertIsInstance(full, self.jax.Array)
        self.assertEqual(full.devices(), x.devices())
        self.assertTrue(bool((full == 2.5).all()))
        self.assertEqual(self.dlbridge_example.empty_like(x).shape, x.shape)


if __name__ == "__main__":
    unittest.main()
