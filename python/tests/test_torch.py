"""PyTorch's own ways."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref

import numpy as np
import pytest

import dlbridge
from support import fill

torch = pytest.importorskip("torch", reason="torch is not installed")
FakeTensorMode = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode


def test_a_tensor_that_needs_a_gradient_is_taken_as_its_memory():
    """`__dlpack__` refuses it, so that nobody forgets the gradient; the table gives it. Its memory
    is what it says, and reading it needs no gradient."""
    tensor = torch.ones(3, requires_grad=True)
    with pytest.raises(BufferError, match="grad"):
        tensor.__dlpack__()
    taken = dlbridge.from_dlpack(tensor)
    assert (taken.data_ptr, taken.shape) == (tensor.data_ptr(), (3,))


def test_a_tensor_that_requires_grad_says_so():
    leaf = torch.ones(3, requires_grad=True)
    for tensor in (leaf, leaf * 2, torch.nn.Parameter(torch.ones(3))):
        taken = dlbridge.from_dlpack(tensor)
        assert taken.requires_grad
        assert dlbridge.from_dlpack(taken).requires_grad
        copy = dlbridge.from_dlpack(tensor, copy=True)
        assert not copy.requires_grad
        before = tensor.tolist()
        fill(copy, 7)
        assert tensor.tolist() == before
    fill(dlbridge.from_dlpack(leaf.detach()), 5)
    assert leaf.tolist() == [5.0] * 3


class Logged(torch.Tensor):
    """A class with a hook of its own, over memory."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})


def test_a_lazily_negated_tensor_is_refused():
    """Its memory has the numbers before the negation, and its `__dlpack__` says nothing of it."""
    part = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
    assert part.tolist() == [-2.0, -4.0]
    assert np.from_dlpack(part).tolist() == [2.0, 4.0]
    whole = [torch._neg_view(torch.ones(3, dtype=dtype)) for dtype in (torch.float64, torch.int8)]
    for negated in (part, part[0], part.as_subclass(Logged), torch.nn.Parameter(part), *whole):
        assert negated.is_neg()
        with pytest.raises(BufferError, match=r"negated lazily; call resolve_neg\(\) first"):
            dlbridge.from_dlpack(negated)
        resolved = negated.detach().resolve_neg()
        assert np.from_dlpack(dlbridge.from_dlpack(resolved)).tolist() == negated.tolist()
    both = torch._neg_view(torch.ones(3, dtype=torch.complex64))
    with pytest.raises(BufferError, match="resolve_neg"):
        dlbridge.from_dlpack(both)
    assert dlbridge.from_dlpack(torch.ones(3).as_subclass(Logged)).shape == (3,)


class Wrapper(torch.Tensor):
    """A class with a hook behind all functions, over no memory."""

    @staticmethod
    def __new__(cls, offset):
        return torch.Tensor._make_wrapper_subclass(cls, (4,), strides=(1,), storage_offset=offset)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(function)


class Dispatching(torch.Tensor):
    """The same over memory."""

    __torch_dispatch__ = Wrapper.__torch_dispatch__


def fake(offset):
    with FakeTensorMode():
        return torch.empty(2**32 + 4)[offset : offset + 4]


def zeros(offset):
    return torch._efficientzerotensor((2**32 + 4,))[offset : offset + 4]


@pytest.mark.parametrize("make", [fake, zeros, Wrapper])
@pytest.mark.parametrize("offset", [0, 10, 100_000, 2**32])
def test_a_tensor_without_memory_is_refused(make, offset):
    """Its data are at an offset to null. Reading them ended the process."""
    with pytest.raises(BufferError, match=r"no memory|without memory|with memory"):
        dlbridge.from_dlpack(make(offset))


def test_a_class_with_a_hook_behind_all_functions_may_have_memory():
    tensor = torch.ones(4).as_subclass(Dispatching)
    assert dlbridge.from_dlpack(tensor).tolist() == [1.0] * 4
    assert dlbridge.from_dlpack(torch.ones(0).as_subclass(Dispatching)).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_its_read_only_wrapper_stays_read_only(dtype):
    wrapper = getattr(torch.utils.dlpack, "ReadOnlyTensorWrapper", None)
    if wrapper is None:
        pytest.skip("this release of torch has no such wrapper")
    tensor = torch.ones(3, dtype=dtype)
    taken = dlbridge.from_dlpack(wrapper(tensor))
    assert (taken.readonly, taken.data_ptr) == (True, tensor.data_ptr())


def test_integers_of_a_few_bits_are_bytes():
    """torch stores each in a byte and exports it as one; the descriptor says nothing else."""
    tensor = torch.empty(3, dtype=torch.int4)
    assert dlbridge.from_dlpack(tensor).dtype == "int8"


def test_a_copy_on_write_is_made_before_the_memory_is_given():
    tensor = torch.arange(4.0)
    lazy = tensor._lazy_clone()
    taken = dlbridge.from_dlpack(lazy)
    fill(taken, 7)
    assert lazy.tolist() == [7.0] * 4
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_an_axis_of_one_may_have_any_stride():
    tensor = torch.empty_strided((1, 3), (77, 1))
    taken = dlbridge.from_dlpack(tensor)
    assert (taken.strides, taken.contiguous) == ((77, 1), True)


def test_an_expanded_tensor_has_steps_of_nothing():
    tensor = torch.tensor([5.0]).expand(2, 3)
    taken = dlbridge.from_dlpack(tensor)
    assert (taken.shape, taken.strides) == ((2, 3), (0, 0))
    assert np.from_dlpack(taken).tolist() == [[5.0] * 3] * 2


def test_a_subclass_goes_the_way_of_its_base():
    class Derived(torch.Tensor):
        pass

    tensor = torch.ones(3).as_subclass(Derived)
    assert dlbridge.inspect(tensor).protocol == "C exchange API"
    assert dlbridge.from_dlpack(tensor).data_ptr == tensor.data_ptr()


# PyTorch warns once in a process.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_quantized_tensor_is_an_error():
    tensor = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    with pytest.raises(BufferError, match="QUInt/QInt types"):
        dlbridge.from_dlpack(tensor)


def test_a_copy_is_one_though_torch_does_not_flag_it():
    tensor = torch.ones(3)
    copy = dlbridge.from_dlpack(tensor, copy=True)
    fill(copy, 2)
    assert tensor.tolist() == [1.0] * 3


def test_the_table_of_torch_on_another_class_is_not_believed():
    class Pretender:
        __dlpack_c_exchange_api__ = torch.Tensor.__dlpack_c_exchange_api__

    with pytest.raises((RuntimeError, TypeError)):
        dlbridge.from_dlpack(Pretender())


def mapped(address):
    """Whether a page is mapped."""
    with open("/proc/self/maps") as maps:
        bounds = (line.split()[0].split("-") for line in maps)
        return any(int(first, 16) <= address < int(end, 16) for first, end in bounds)


BIG = 1 << 22
MOVED = {
    "nothing": lambda tensor: None,
    "set_": lambda tensor: tensor.set_(torch.zeros(1)),
    "data": lambda tensor: setattr(tensor, "data", torch.zeros(1)),
    "resize_": lambda tensor: tensor.resize_(2 * BIG),
    "storage": lambda tensor: tensor.untyped_storage().resize_(0),
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells what is mapped")
@pytest.mark.parametrize("how", MOVED)
def test_an_import_keeps_what_pytorchs_own_export_keeps(how):
    """A tensor that is replaced in place frees the memory below each export, PyTorch's own too."""
    seen = []
    for share in (np.from_dlpack, dlbridge.from_dlpack):
        tensor = torch.ones(BIG)
        address = tensor.data_ptr()
        shared = share(tensor)
        MOVED[how](tensor)
        gc.collect()
        seen.append(mapped(address))
        del tensor, shared
    assert seen[0] == seen[1]
    assert how != "nothing" or seen == [True, True]


def test_a_tensor_outlives_its_object():
    for make in (lambda: torch.arange(6.0).reshape(2, 3), lambda: torch.arange(6.0)[1::2]):
        tensor = make()
        expected, reference = tensor.tolist(), weakref.ref(tensor)
        taken = dlbridge.from_dlpack(tensor)
        del tensor
        assert taken.tolist() == expected
        del taken
        assert reference() is None


INTEGERS = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64"
FLOATS = "float16 bfloat16 float32 float64 complex64 complex128"
NARROW = "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu complex32 int4"


@pytest.mark.parametrize("name", f"{INTEGERS} {FLOATS} {NARROW}".split())
def test_the_shim_and_the_table_describe_the_same(name):
    whole = torch.empty((4, 6), dtype=getattr(torch, name))
    parts = [whole, whole.t(), whole[1:, ::2], whole[2, 3], whole[:0], whole.expand(3, 4, 6)]
    for tensor in parts:
        taken = dlbridge.from_dlpack(tensor)
        # As any consumer imports it, by the table.
        seen = dlbridge.inspect(tensor)
        assert seen.protocol == "C exchange API"
        found = (str(taken.dtype), taken.shape, taken.strides, taken.readonly)
        assert found == (str(seen.dtype), seen.shape, seen.strides, seen.readonly)
        assert taken.data_ptr == (tensor.data_ptr() if tensor.numel() else taken.data_ptr)


UNUSUAL = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse rows": lambda: torch.eye(3).to_sparse_csr(),
    "meta": lambda: torch.zeros(3, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    "conjugated": lambda: torch.ones(3, dtype=torch.complex64).conj(),
    "negated": lambda: torch._neg_view(torch.ones(3)),
    "zeros": lambda: torch._efficientzerotensor((3,)),
    "MKL-DNN": lambda: torch.zeros(2, 3).to_mkldnn(),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("what", UNUSUAL)
def test_a_tensor_without_plain_memory_is_refused(what, capfd):
    tensor = UNUSUAL[what]()
    capfd.readouterr()
    for unusual in (tensor, torch.nn.Parameter(tensor, requires_grad=False)):
        with pytest.raises((BufferError, RuntimeError, NotImplementedError)):
            dlbridge.from_dlpack(unusual)
    # A failure of the shim is not logged.
    assert capfd.readouterr().err == ""


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_nested_tensor_names_its_parts():
    """The error was PyTorch's: "NestedTensorImpl doesn't support sizes. Please file an issue"."""
    with pytest.raises(BufferError, match=r"found a nested one; pass .*x\.unbind\(\)"):
        dlbridge.from_dlpack(UNUSUAL["nested"]())


def test_a_lazily_negated_tensor_is_refused_with_a_stream():
    """A class with a hook was asked for its memory without a question for its values."""

    class OnDevice(Logged):
        def __dlpack_device__(self):
            # As if its memory were CUDA's, so that it is told of the stream.
            return (2, 0)

    plain = torch.ones(2).as_subclass(OnDevice)
    assert dlbridge.from_dlpack(plain, stream=-1).tolist() == [1.0, 1.0]
    with pytest.raises(BufferError, match="resolve_neg"):
        dlbridge.from_dlpack(torch._neg_view(plain), stream=-1)


def test_a_tensor_of_a_transform_is_refused():
    with pytest.raises(TypeError, match=r"torch\.vmap"):
        torch.vmap(lambda x: dlbridge.from_dlpack(x))(torch.zeros(2, 3))


def test_a_gradient_is_seen_in_every_mode():
    leaf = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert dlbridge.from_dlpack(leaf).requires_grad
        assert not dlbridge.from_dlpack(leaf * 2).requires_grad
    with torch.inference_mode():
        assert not dlbridge.from_dlpack(torch.ones(3)).requires_grad
        assert dlbridge.from_dlpack(leaf).requires_grad
    assert not dlbridge.from_dlpack(leaf.detach()).requires_grad
    leaf.requires_grad_(False)
    assert not dlbridge.from_dlpack(leaf).requires_grad


def test_a_result_that_loses_its_gradient_is_said():
    """Template and examples dropped `requires_grad` without a word."""
    example = pytest.importorskip("dlbridge_example", reason="no example extension")
    x = torch.ones((2, 2), requires_grad=True)
    for function in (lambda x: example.scale(x, 2.0), example.softmax, example.row_sums):
        with pytest.raises(TypeError, match=r"without gradients, found a torch\.Tensor .*detach"):
            function(x)
        assert not function(x.detach()).requires_grad
    with pytest.warns(UserWarning, match=r"requires grad, whose graph ends here; .*x\.detach\(\)"):
        example.convert(x, np.ones(3, "float32"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        example.convert(x.detach(), np.ones(3, "float32"))
        example.convert(x, np.arange(3))
        with torch.no_grad():
            example.convert(x, np.ones(3, "float32"))
