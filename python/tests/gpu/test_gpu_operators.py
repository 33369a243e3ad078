"""An operator in Rust with a CUDA kernel: PyTorch's and JAX's, on their streams."""

from __future__ import annotations

import unittest

from gpus import framework, installed

# Enough for the host to be done with its part long before the GPU is.
SIZE, ROUNDS = 8192, 30


class Torch(unittest.TestCase):
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

    def test_what_it_does_not_take_is_refused(self) -> None:
        x = self.torch.ones(3, 4, device="cuda")
        with self.assertRaisesRegex(RuntimeError, "expected contiguous elements"):
            self.scale(x.t(), 2.0)
        with self.assertRaisesRegex(RuntimeError, "found one on cpu; use x.to"):
            installed("cuda_operators").scale_backward(x, x.cpu(), 2.0)


class Jax(unittest.TestCase):
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
