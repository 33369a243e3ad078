"""Misuse of operators: an error in words or the right values, in every framework."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import operators
from support import failures_in_threads

pytest.importorskip("dlbridge_example", reason="the example extension is not installed")
my = operators.load()


def ones(*shape):
    return np.ones(shape, np.float32)


@pytest.fixture
def callbacks(monkeypatch):
    """The module whose function `callback` is called by the operator `calling`."""
    module = types.ModuleType("callbacks")
    monkeypatch.setitem(sys.modules, "callbacks", module)
    return module


WAYS = {
    0: "as asked, with",
    1: "fail panicked: as asked",
    2: "fail panicked: without words",
    3: "expected 3 elements, found 99",
    4: r"expected one inside the shape \[3\], found \[99\]",
    5: r"expected a shape that \[0\] can be repeated to",
}


def of_torch(array):
    return pytest.importorskip("torch").from_numpy(array)


def of_jax(array):
    return pytest.importorskip("jax").numpy.asarray(array)


EVERY = pytest.mark.parametrize(
    "array", [np.asarray, of_torch, of_jax], ids=["numpy", "torch", "jax"]
)


@EVERY
@pytest.mark.parametrize("way", WAYS)
def test_a_function_that_fails_or_panics_raises(array, way):
    x = array(ones(3))
    for _ in range(3):
        with pytest.raises((ValueError, RuntimeError), match=WAYS[way]):
            np.asarray(my.fail(x, way))
    np.testing.assert_array_equal(my.fail(x, 9), ones(3))


@EVERY
def test_a_result_that_is_not_filled_is_zero(array):
    """Not what was in the memory before."""
    for shape in [(1000,), (5, 7), (1 << 20,)]:
        x = array(ones(*shape))
        for _ in range(3):
            # Memory with other values, which the framework may use again.
            np.asarray(array(ones(*shape)) * 7)
            result, found = map(np.asarray, my.idle(x))
            assert not result.any() and not found.any()


def test_a_result_of_numpy_that_is_not_filled_is_zero():
    x = ones(4, 3, 2)
    for out in (7 * ones(4, 3, 2), 7 * ones(8, 6, 4)[::2, ::2, ::2], 7 * ones(2, 3, 4).T):
        found = np.empty((4, 3), np.float32)
        my.idle.ufunc(x, out=(out, found))
        assert not out.any() and not found.any()
    same = 7 * ones(4, 2)
    assert not my.idle.ufunc(same, out=(same, None))[0].any()


@EVERY
def test_bytes_other_than_0_and_1_are_true(array):
    bools = np.array([0, 1, 2, 255], np.uint8).view(bool)
    assert np.asarray(my.same(array(bools))).view(np.uint8).tolist() == [0, 1, 1, 1]


@EVERY
def test_a_result_of_too_many_bytes_is_refused(array):
    for x in (ones(3), ones(0)):
        with pytest.raises((BufferError, RuntimeError, ValueError), match=r"fit|allocate"):
            my.huge(array(x))


@EVERY
def test_ndim_at_the_limit(array):
    assert my.same(array(ones(*[1] * 64))).ndim == 64
    assert my.same(array(ones())).ndim == 0
    assert my.same(array(ones(2, 0, 3))).shape == (2, 0, 3)


@EVERY
def test_rows_without_elements_are_not_walked(array):
    x = array(np.zeros((2**40, 0), np.float32))
    assert my.fail(x, 0).shape == (2**40, 0)


def test_rows_of_numpy_without_elements_are_not_walked():
    assert my.fail.ufunc(np.zeros((2**40, 0), np.float32), 0).shape == (2**40, 0)


@EVERY
def test_scalars_of_another_kind_are_refused(array):
    x = array(ones(2))
    for name, *scalars in [
        ("count", 1.0, 2.5, False),
        ("factor", "1", 2, False),
        ("count", 1.0, 2**70, False),
        ("negate", 1.0, 1, "no"),
    ]:
        with pytest.raises(
            (TypeError, RuntimeError, OverflowError), match=rf"times.* '?{name}[:']"
        ):
            my.times(x, *scalars)
    for zero in (0.0, -0.0):
        found = np.asarray(my.times(x, zero, 1, False))
        assert np.signbit(found).tolist() == [np.signbit(zero)] * 2


@EVERY
def test_a_function_of_an_operator_calls_operators(array, callbacks):
    """The framework has released the GIL, also where PyO3 counts the thread as attached."""
    x, depth = array(ones(100_000)), []

    def callback():
        depth.append(1)
        if len(depth) < 3:
            np.asarray(my.same(x)), my.calling.ufunc(ones(100_000))
            with pytest.raises(ValueError, match="as asked"):
                my.fail.ufunc(ones(100_000, 2), 1)

    callbacks.callback = callback
    assert np.asarray(my.calling(x)).sum() == 100_000
    callbacks.callback = lambda: 1 / 0
    with pytest.raises((ValueError, RuntimeError), match="ZeroDivisionError"):
        np.asarray(my.calling(x))
    nested = []

    def callback():
        if nested:
            raise KeyError("inner")
        nested.append(1)
        np.asarray(my.calling(x))

    callbacks.callback = callback
    with pytest.raises((ValueError, RuntimeError), match="KeyError: 'inner'"):
        np.asarray(my.calling(x))


@EVERY
def test_many_threads_call_an_operator(array):
    x = array(ones(1000))

    def work():
        for factor in range(1, 30):
            assert np.asarray(my.times(x, factor, 1, False)).sum() == 1000 * factor
            assert my.times.ufunc(ones(1000), factor, 1, False).sum() == 1000 * factor

    assert failures_in_threads(8, work) == []


def refuses_what_is_traced(tracer, x):
    import dlbridge_example

    import dlbridge

    for function in (dlbridge.from_dlpack, dlbridge_example.norm):
        with pytest.raises((TypeError, BufferError), match="with the crate dlbridge-operators"):
            tracer(function)(x)


def test_a_plain_function_that_jax_traces_names_operators():
    jax = pytest.importorskip("jax")
    refuses_what_is_traced(jax.jit, jax.numpy.ones(3))
    refuses_what_is_traced(jax.grad, jax.numpy.ones(3))
    refuses_what_is_traced(jax.vmap, jax.numpy.ones((2, 3)))


def test_a_plain_function_that_torch_traces_names_operators():
    torch = pytest.importorskip("torch")
    refuses_what_is_traced(torch.vmap, torch.ones(2, 3))
    refuses_what_is_traced(torch.func.grad, torch.ones(3))
    with torch._subclasses.FakeTensorMode():
        refuses_what_is_traced(lambda function: function, torch.ones(3))


class TestNumpy:
    def test_arguments_that_share_memory(self):
        base = np.arange(20, dtype=np.float32)
        for y, x in [(base[:-1], base[1:]), (base, base), (base[0:10:2], base[2:12:2])]:
            with pytest.raises(TypeError, match="no other code in Rust uses"):
                my.add_(y, x)
        my.add_(base[::2], base[1::2])
        assert base[1::2].tolist() == [1 + 4 * i for i in range(10)]
        with pytest.raises(TypeError, match="read-only"):
            my.add_(ones(4), np.broadcast_to(ones(1), 4))

    def test_results_that_share_memory(self):
        """As NumPy defines it: each result has the values that separate memory would get."""
        both = np.zeros(())
        low, high = my.extremes.ufunc(np.arange(5.0), out=(both, both))
        assert low is high
        own = np.arange(10.0).reshape(2, 5)
        my.extremes.ufunc(own, out=(own[:, 0], own[:, 1]))
        assert own[:, :2].tolist() == [[0, 4], [5, 9]]
        repeated = np.lib.stride_tricks.as_strided(ones(1), (4,), (0,), writeable=True)
        for function in (my.same.ufunc, lambda x, out: my.fail.ufunc(x, 9, out=out)):
            assert function(np.arange(4, dtype=np.float32), out=repeated)[0] == 3

    @pytest.mark.parametrize("dtype", ["float16", "complex64", "object", "M8[s]", "U3", ">f4"])
    def test_other_dtypes_are_refused(self, dtype):
        with pytest.raises((TypeError, BufferError), match="expected"):
            my.same(np.zeros(3, dtype))

    def test_memory_that_is_read_is_not_written_by_a_callback(self, callbacks):
        x = ones(3)
        callbacks.callback = lambda: my.add_(ones(3), x)
        with pytest.raises(ValueError, match="no other code in Rust uses"):
            my.calling(x)
        my.add_(ones(3), x)

    def test_odd_strides(self):
        x = np.arange(6, dtype=np.float32)
        assert my.same(x[::-1]).tolist() == x[::-1].tolist()
        unaligned = np.frombuffer(bytes(13), np.uint8)[1:].view(np.float32)
        assert my.same(unaligned).tolist() == my.same.ufunc(unaligned).tolist() == [0, 0, 0]
        with pytest.raises(MemoryError):
            my.same(np.broadcast_to(np.float32(1), 2**60))


class TestTorch:
    torch = property(lambda self: pytest.importorskip("torch"))

    def refused(self, message, function, *arguments):
        with pytest.raises((RuntimeError, NotImplementedError), match=message):
            function(*arguments)

    def test_arguments_that_share_memory(self):
        torch = self.torch
        base = torch.arange(20.0)
        for y, x in [(base[:-1], base[1:]), (base, base), (base[0:10:2], base[2:12:2])]:
            self.refused("no other argument has", my.add_, y, x)
        # Copied when it is first written, so that its address changes.
        lazy = torch._lazy_clone(base)
        self.refused("no other argument has", my.add_, lazy, lazy)
        my.add_(base[::2], base[1::2])
        assert base[1::2].tolist() == [1 + 4 * i for i in range(10)]
        self.refused("written once", my.add_, torch.ones(4), base[:1].expand(4))

    def test_tensors_without_memory(self):
        torch = self.torch
        zeros, emptied = torch._efficientzerotensor(2**20), torch.ones(4)
        assert my.same(zeros).sum() == 0
        self.refused("immutable", my.add_, torch.ones(2**20), zeros)
        emptied.untyped_storage().resize_(0)
        self.refused("found a null pointer", my.same, emptied)
        self.refused("found a null pointer", my.add_, torch.ones(4), emptied)
        meta = torch.ones(4, device="meta")
        assert my.same(meta).device.type == "meta"
        self.refused(None, my.weighted, torch.ones(4), meta)
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        with torch._subclasses.FakeTensorMode():
            fake = torch.ones(4)
            assert my.same(fake).shape == (4,)
            # Its words pass through C++, which loses them before PyTorch 2.14.
            words = "weight: expected 4 or 1 along a leading axis, found 3|such as the shape rule"
            with pytest.raises((ValueError, RuntimeError), match=words):
                my.weighted(fake, torch.ones(3))
        for tensor in (meta, fake):
            kernel = my.same.torch.default.redispatch
            self.refused("found a null pointer", kernel, keys, tensor)

    @pytest.mark.filterwarnings("ignore")
    def test_tensors_of_another_layout(self):
        torch, x = self.torch, self.torch.ones(4, 4)
        for tensor in (
            x.to_sparse(),
            x.to_sparse_csr(),
            x.to_mkldnn(),
            torch.quantize_per_tensor(x, 1.0, 0, torch.quint8),
            torch.nested.nested_tensor([x, x]),
            torch.nested.nested_tensor([x, x], layout=torch.jagged),
        ):
            self.refused("misused_operators", my.same, tensor)
        self.refused("misused_operators", my.weighted, x, x.to_mkldnn())
        names = "bfloat16 complex64 uint16 uint32 uint64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
        for name in (names + "float8_e5m2fnuz float8_e8m0fnu").split():
            array = torch.empty(4, dtype=getattr(torch, name))
            self.refused(f"found {name}(; convert with x.to.*)?$", my.same, array)
        array = torch.empty(4, dtype=torch.bits8)
        self.refused("same: x: expected a dtype of numbers.* number 21", my.same, array)
        self.refused("ndim: expected 0 to 64, found 65", my.same, x[0, 0].expand([1] * 65))

    def test_lazy_values(self):
        torch = self.torch
        lazy = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
        assert lazy.is_neg() and my.same(lazy).tolist() == [-2, -4]
        x = torch.zeros(2)
        my.add_(lazy, x)
        assert x.tolist() == [-2, -4]
        for guard in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with guard():
                self.refused("resolve_neg", my.add_, torch.ones(2), lazy)

    def test_gradients(self):
        torch = self.torch
        x, weight = torch.arange(3.0, requires_grad=True), torch.ones(3, requires_grad=True)
        my.weighted(x, weight).sum().backward()
        assert (x.grad.tolist(), weight.grad.tolist()) == ([1, 1, 1], [0, 1, 2])
        weight.grad = None
        my.weighted(torch.arange(3, dtype=torch.int32), weight).sum().backward()
        assert weight.grad.tolist() == [0, 1, 2]
        x.grad = None
        my.counted(x)[0].sum().backward()
        assert x.grad.tolist() == [2, 2, 2] and my.counted(x)[1] == 3
        loss = my.fragile(x).sum()
        self.refused("fragile_backward panicked: in the gradient", loss.backward)
        with pytest.raises(ValueError, match="at least one Tensor"):
            torch.vmap(my.same.torch, (None,))(x)


class TestJax:
    jax = property(lambda self: pytest.importorskip("jax"))

    def test_arguments_that_share_memory(self):
        jnp, compiled = self.jax.numpy, self.jax.jit(lambda y, x: my.add_(y, x))
        x = jnp.arange(6, dtype="float32")
        for function in (my.add_, compiled):
            assert function(x, x).tolist() == [0, 2, 4, 6, 8, 10]
            assert function(x[:-1], x[1:]).tolist() == [1, 3, 5, 7, 9]
        own = np.arange(1024, dtype=np.float32)
        assert my.add_.jax(own, own)[3] == 6 and own[3] == 3 and x[1] == 1

    def test_gradients(self):
        jax, x = self.jax, self.jax.numpy.arange(3, dtype="float32")

        def total(x, weight):
            return my.weighted(x, weight).sum()

        both = jax.grad(total, (0, 1))(x, x + 1)
        assert [of_one.tolist() for of_one in both] == [[1, 2, 3], [0, 1, 2]]
        whole = x.astype("int32")
        assert jax.grad(total, 1)(whole, x).tolist() == [0, 1, 2]
        none, of_weight = jax.grad(total, (0, 1), allow_int=True)(whole, x)
        assert none.dtype == jax.dtypes.float0 and of_weight.tolist() == [0, 1, 2]
        with pytest.raises(jax.errors.JaxRuntimeError, match="in the gradient"):
            jax.grad(lambda x: my.fragile(x).sum())(x)

    def test_the_advised_dtype_is_one_that_jax_has(self):
        jnp = self.jax.numpy
        weight = jnp.ones(3, dtype="float32")
        for x in (jnp.arange(3, dtype="int16"), jnp.arange(3, dtype="bfloat16")):
            with pytest.raises(TypeError, match=r"; convert with x\.astype") as error:
                my.weighted(x, weight)
            advice = str(error.value).splitlines()[0].split("; convert with ")[1]
            assert my.weighted(eval(advice), weight).tolist() == [0, 1, 2]
        # Other tests of the process may have enabled dtypes of 64 bits.
        if not self.jax.config.jax_enable_x64:
            rounds = r"convert with x.astype\(jnp.float32\), which rounds"
            with pytest.raises(TypeError, match=rounds):
                my.same(jnp.arange(3, dtype="uint32"))

    def test_gradients_beside_a_result_of_integers(self):
        jax, x = self.jax, self.jax.numpy.arange(3, dtype="float32")
        of_first = jax.grad(lambda x: my.counted(x)[0].sum())
        assert of_first(x).tolist() == jax.jit(of_first)(x).tolist() == [2, 2, 2]
        both = jax.vmap(of_first)(jax.numpy.stack([x, x]))
        assert both.tolist() == [[2, 2, 2]] * 2

    def test_constants_and_absent_arrays(self):
        jax, x = self.jax, self.jax.numpy.ones(3, "float32")
        with pytest.raises(TypeError, match="use static_argnums"):
            jax.jit(my.times)(x, 2.0, 1, False)
        static = jax.jit(my.times, static_argnums=(1, 2, 3))
        assert static(x, 2.0, 1, True).tolist() == [-2] * 3
        with pytest.raises(TypeError, match="weight: expected an array, found None"):
            my.weighted(x, None)
        with pytest.raises(ValueError, match="6 or 1 along a leading axis, found 3"):
            jax.eval_shape(my.weighted, jax.numpy.ones(6, "float32"), x)
        found = jax.vmap(my.weighted, (None, None), axis_size=3)(x, x)
        assert found.shape == (3, 3)

    def test_calls_that_contradict_the_declaration(self):
        """By JAX's own function, with other results, arguments and attributes."""
        jax, x = self.jax, self.jax.numpy.ones(6, "float32")
        assert my.same(x)[0] == 1, "the target is registered"

        def shape(n, dtype="float32"):
            return jax.ShapeDtypeStruct((n,), jax.numpy.dtype(dtype))

        def refused(message, name, results, *arrays, **attributes):
            call = jax.ffi.ffi_call(f"{my.__name__}.{name}", results)
            with pytest.raises(jax.errors.JaxRuntimeError, match=message):
                jax.block_until_ready(call(*arrays, **attributes))

        refused(r"expected an output float32\[6\], found float32\[9\]", "same", shape(9), x)
        refused("found float16", "same", shape(6, "float16"), x)
        refused("as many buffers", "same", shape(6))
        refused("as many buffers", "same", shape(6), x, x)
        refused("as many buffers", "same", (shape(6), shape(6)), x)
        assert my.times(x, 1.0, 1, False)[0] == my.add_(x, x)[0] / 2
        refused("expected an attribute factor, found none", "times", shape(6), x)
        scalars = {"count": np.int64(1), "negate": np.bool_(False)}
        for factor in (np.int64(1), np.float32(1)):
            refused("of another kind", "times", shape(6), x, factor=factor, **scalars)
        refused("extents of the argument in place", "add_", shape(5), x, x + 1)
