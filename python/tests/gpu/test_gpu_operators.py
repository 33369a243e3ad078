"""An operator in Rust with a CUDA kernel, in PyTorch and in JAX, on their streams."""

from __future__ import annotations

import threading
import unittest

from gpus import OnGpu

SIZE, ROUNDS = 8192, 30


class TorchOperator(OnGpu):
    needs = ("torch", "cuda_operators")

    def setUp(self) -> None:
        self.scale = self.cuda_operators.scale

    def test_values_and_gradients(self) -> None:
        x = self.torch.arange(1000.0, device="cuda").reshape(10, 100).requires_grad_()
        y = self.scale(x, 3.0)
        self.assertEqual((y.device, y.shape), (x.device, x.shape))
        self.assertTrue(self.torch.equal(y, x * 3))
        y.sum().backward()
        self.assertTrue((x.grad == 3).all().item())
        self.assertEqual(self.scale(x[:0], 3.0).shape, (0, 100))

    def test_tensors_of_any_strides(self) -> None:
        x = self.torch.arange(24.0, device="cuda").reshape(4, 6)
        for view in (x.t(), x[:, ::2], x[1:, 1:], x[:1].expand(5, 6), x[0:0], x[0, 1]):
            self.assertTrue(self.torch.equal(self.scale(view, 2.0), view * 2))
        backward = self.cuda_operators.scale_backward
        self.assertTrue(self.torch.equal(backward(x, x[:1], 2.0), x * 2))

    def test_transforms(self) -> None:
        def scaled(x):
            return self.scale(x, 3.0)

        x = self.torch.arange(6.0, device="cuda").reshape(2, 3)
        mapped = self.torch.vmap(scaled, in_dims=1, out_dims=1)(x)
        self.assertTrue(self.torch.equal(mapped, x * 3))
        jacobian = self.torch.autograd.functional.jacobian(scaled, x[0])
        self.assertTrue(self.torch.equal(jacobian, 3 * self.torch.eye(3, device="cuda")))

    def test_pytorch_checks_it(self) -> None:
        x = self.torch.arange(6.0, device="cuda").reshape(2, 3).requires_grad_()
        checked = self.torch.library.opcheck(self.scale.torch.default, (x, 3.0))
        self.assertEqual(set(checked.values()), {"SUCCESS"}, checked)
        for rows in (slice(None), slice(1)):
            for columns in (slice(None), slice(None, None, 2)):

                def scaled(x, rows=rows, columns=columns):
                    return self.scale(x[rows, columns].t().expand(2, -1, -1), 3.0)

                # The function is linear, so that a large step is exact in float32.
                self.assertTrue(self.torch.autograd.gradcheck(scaled, (x,), eps=0.25))

    def test_an_allocation_that_fails_is_pytorchs_error(self) -> None:
        is_new = tuple(map(int, self.torch.__version__.split(".")[:2])) >= (2, 14)
        error = self.torch.OutOfMemoryError if is_new else RuntimeError
        x = self.torch.ones(1, device="cuda").expand(1 << 42)
        for guard in (self.torch.enable_grad, self.torch.no_grad, self.torch.inference_mode):
            with guard(), self.assertRaises(error):
                self.scale(x, 3.0)
        self.assertEqual(self.scale(x[:2], 3.0).tolist(), [3, 3])

    def test_threads_without_a_context(self) -> None:
        x = self.torch.ones(100, device="cuda")
        right = []

        def work() -> None:
            right.append(bool((self.scale(x, 3.0) == 3).all()))

        for _ in range(8):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        self.assertEqual(right, [True] * 8)

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
            self.skipTest("the GPU was done: the test shows nothing")

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

    def test_graphed_callables(self) -> None:
        class Scaled(self.torch.nn.Module):
            def forward(module, x):
                return self.scale(x, 3.0)

        x = self.torch.ones(100, device="cuda", requires_grad=True)
        graphed = self.torch.cuda.make_graphed_callables(Scaled(), (x,))
        y = graphed(x)
        y.sum().backward()
        self.assertTrue((y == 3).all().item())
        self.assertTrue((x.grad == 3).all().item())

    def test_an_operand_on_the_host_is_refused(self) -> None:
        x = self.torch.ones(3, 4, device="cuda")
        with self.assertRaisesRegex(RuntimeError, "found one on cpu; use x.to"):
            self.cuda_operators.scale_backward(x, x.cpu(), 2.0)


class TorchCompiler(OnGpu):
    needs = ("torch", "cuda_operators")

    def compiled(self, **options) -> None:
        scale = self.cuda_operators.scale
        function = self.torch.compile(lambda x: scale.torch(x, 2.0) + 1, fullgraph=True, **options)
        x = self.torch.ones(3, 4, device="cuda")
        for _ in range(3):
            self.assertTrue((function(x) == 3).all().item())

    def test_without_code_generation(self) -> None:
        self.compiled(backend="aot_eager")

    def test_with_inductor(self) -> None:
        self.compiled()

    def test_with_graphs(self) -> None:
        self.compiled(mode="reduce-overhead")


class JaxOperator(OnGpu):
    needs = ("jax", "cuda_operators")

    def setUp(self) -> None:
        self.scale = self.cuda_operators.scale

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


if __name__ == "__main__":
    unittest.main()
