"""Arrays of PyTorch, CuPy and JAX on a GPU: into Rust and back over the same memory."""

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
