"""Memory of Rust, made by the example extension: it is freed behind all work that reads it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import unittest

import dlbridge
from gpus import OnGpu, driver

LEN = 1 << 16


class Slices(OnGpu):
    """Without a framework, by the driver alone."""

    needs = ("dlbridge_example",)

    def test_it_is_a_tensor_on_the_device(self) -> None:
        x = self.dlbridge_example.filled(8, 7)
        self.assertEqual((x.device, x.shape, x.__dlpack_device__()), ("cuda:0", (8,), (2, 0)))

    def test_the_cuda_array_interface_names_its_stream(self) -> None:
        x = self.dlbridge_example.filled(8, 7)
        interface = x.__cuda_array_interface__
        self.assertEqual(interface["data"], (x.data_ptr, False))
        self.assertEqual((interface["shape"], interface["typestr"]), ((8,), "<f4"))
        self.assertNotEqual(interface["stream"], 0)

    def test_the_context_of_the_thread_is_restored(self) -> None:
        current, functions = ctypes.c_void_p(), driver()
        made, found = [self.dlbridge_example.filled(8, 7)], []

        def work() -> None:
            x = dlbridge.from_dlpack(made.pop(), stream=2)
            dlbridge.from_dlpack(x, device="cpu")
            dlbridge.from_dlpack(x, copy=True)
            del x
            functions.cuCtxGetCurrent(ctypes.byref(current))
            found.append(current.value)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual(found, [None])

    def test_the_end_of_the_process(self) -> None:
        code = (
            "import dlbridge, dlbridge_example\n"
            "x = dlbridge_example.filled(8, 7)\n"
            "y = dlbridge.from_dlpack(x, stream=2)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))


class TorchReadsSlices(OnGpu):
    needs = ("torch", "dlbridge_example")

    def filled(self) -> object:
        return self.dlbridge_example.filled(LEN, 7)

    def test_the_natural_line(self) -> None:
        for _ in range(1000):
            self.assertTrue((self.torch.from_dlpack(self.filled()) == 7).all())

    def test_through_a_second_extension(self) -> None:
        for _ in range(1000):
            tensor = dlbridge.from_dlpack(self.filled())
            self.assertTrue((self.torch.from_dlpack(tensor) == 7).all())

    def test_on_side_streams(self) -> None:
        for _ in range(300):
            with self.torch.cuda.stream(self.torch.cuda.Stream()):
                read = self.torch.from_dlpack(self.filled()) == 7
            self.assertTrue(read.all())

    def test_on_a_stream_that_was_not_named(self) -> None:
        for _ in range(300):
            x, stream = self.torch.from_dlpack(self.filled()), self.torch.cuda.Stream()
            stream.wait_stream(self.torch.cuda.current_stream())
            with self.torch.cuda.stream(stream):
                read = x == 7
            del x
            self.assertTrue(self.torch.equal(read, self.torch.ones_like(read)))

    def test_on_fresh_threads(self) -> None:
        right = []

        def work() -> None:
            right.append(bool((self.torch.from_dlpack(self.filled()) == 7).all()))

        for _ in range(100):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        self.assertEqual(right, [True] * 100)

    def test_dropped_on_another_thread(self) -> None:
        for _ in range(100):
            made = [self.torch.from_dlpack(self.filled())]
            read = made[0] == 7
            thread = threading.Thread(target=made.clear)
            thread.start()
            thread.join()
            self.assertTrue(read.all())

    def test_a_stream_that_is_gone(self) -> None:
        functions = driver()
        self.torch.cuda.init()
        for _ in range(100):
            stream = ctypes.c_void_p()
            self.assertEqual(functions.cuStreamCreate(ctypes.byref(stream), 1), 0)
            tensor = dlbridge.from_dlpack(self.filled(), stream=stream.value)
            read = self.torch.from_dlpack(tensor) == 7
            self.assertEqual(functions.cuStreamDestroy_v2(stream), 0)
            del tensor
            self.assertTrue(read.all())

    def test_the_end_of_the_process(self) -> None:
        code = (
            "import torch, dlbridge, dlbridge_example\n"
            "x = torch.from_dlpack(dlbridge_example.filled(1 << 16, 7))\n"
            "y = dlbridge.from_dlpack(x)\n"
            "z = x == 7\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))


class CuPyReadsSlices(OnGpu):
    needs = ("cupy", "dlbridge_example")

    def test_the_natural_line(self) -> None:
        for _ in range(1000):
            x = self.dlbridge_example.filled(LEN, 7)
            self.assertTrue(bool((self.cupy.from_dlpack(x) == 7).all()))

    def test_on_side_streams(self) -> None:
        for _ in range(300):
            with self.cupy.cuda.Stream(non_blocking=True):
                x = self.dlbridge_example.filled(LEN, 7)
                self.assertTrue(bool((self.cupy.from_dlpack(x) == 7).all()))


class JaxReadsSlices(OnGpu):
    needs = ("jax", "dlbridge_example")

    def test_the_natural_line(self) -> None:
        for _ in range(1000):
            x = self.dlbridge_example.filled(LEN, 7)
            self.assertTrue(bool((self.jax.dlpack.from_dlpack(x) == 7).all()))


if __name__ == "__main__":
    unittest.main()
