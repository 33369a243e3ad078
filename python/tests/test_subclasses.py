"""Subclasses of types that have a fast import path: what they override decides, not their base."""

from __future__ import annotations

import numpy as np
import pytest

import dlbridge
from dlbridge import _native


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        self.torch = pytest.importorskip("torch", reason="torch is not installed")

    @pytest.mark.parametrize("move", ["set_", "resize_"])
    @pytest.mark.parametrize("take", [_native._borrow, dlbridge.inspect])
    def test_memory_that_moves_while_the_object_is_asked_is_described_afterwards(self, take, move):
        """A complex tensor is asked `is_conj()`, which is Python code of a subclass."""
        torch = self.torch
        other = torch.zeros(5, dtype=torch.complex64)

        class Moving(torch.Tensor):
            def is_conj(self):
                if move == "set_":
                    self.set_(other.untyped_storage(), 0, (5,), (1,))
                else:
                    self.resize_(1 << 20)
                return False

        tensor = torch.ones(3, dtype=torch.complex64).as_subclass(Moving)
        before = tensor.data_ptr()
        facts = take(tensor)
        facts = facts if isinstance(facts, dict) else vars(facts)
        assert facts["data_ptr"] == tensor.data_ptr() != before
        assert tuple(facts["shape"]) == tuple(tensor.shape)

    def test_an_object_that_fails_to_answer_is_left_to_its_own_dlpack(self):
        class Silent(self.torch.Tensor):
            def is_conj(self):
                raise AttributeError

        tensor = self.torch.ones(3, dtype=self.torch.complex64).as_subclass(Silent)
        # PyTorch's `__dlpack__` asks the same question.
        with pytest.raises(AttributeError):
            _native._borrow(tensor)
        assert np.from_dlpack(dlbridge.from_dlpack(self.torch.ones(3))).tolist() == [1, 1, 1]

    def test_a_subclass_that_overrides_dlpack_is_asked_by_its_own(self):
        torch = self.torch

        class Other(torch.Tensor):
            def __dlpack__(self, **keywords):
                return np.arange(7).__dlpack__(**keywords)

        class Refusing(torch.Tensor):
            def __dlpack__(self, **keywords):
                raise BufferError("mine alone")

        tensor = torch.ones(3)
        assert dlbridge.from_dlpack(tensor.as_subclass(Other)).shape == (7,)
        assert _native._borrow(tensor.as_subclass(Other))["shape"] == [7]
        for take in (dlbridge.from_dlpack, _native._borrow):
            with pytest.raises(BufferError, match="mine alone"):
                take(tensor.as_subclass(Refusing))

    def test_a_subclass_that_intercepts_calls_is_asked_by_them(self):
        torch = self.torch

        class Refusing(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, arguments=(), keywords=None):
                raise BufferError(f"no {function.__name__}")

        class Hiding(torch.Tensor):
            def __getattribute__(self, name):
                if name == "__dlpack__":
                    raise BufferError("no __dlpack__")
                return super().__getattribute__(name)

        for kind in (Refusing, Hiding):
            for take in (dlbridge.from_dlpack, _native._borrow):
                with pytest.raises(BufferError, match="no __dlpack__"):
                    take(torch.ones(3).as_subclass(kind))

    def test_a_subclass_that_overrides_nothing_of_it_goes_the_fast_path(self):
        torch = self.torch

        class Named(torch.Tensor):
            def name(self):
                return "mine"

        class Same(torch.Tensor):
            __dlpack__ = torch.Tensor.__dlpack__
            __torch_function__ = torch._C._disabled_torch_function_impl

        for kind in (Named, Same, torch.nn.Parameter):
            tensor = torch.ones(3).as_subclass(kind)
            assert dlbridge.inspect(tensor).protocol == "C exchange API"

    def test_an_uninitialised_parameter_is_refused_by_torch_itself(self):
        parameter = self.torch.nn.parameter.UninitializedParameter()
        for take in (dlbridge.from_dlpack, _native._borrow):
            with pytest.raises(ValueError, match="uninitialized parameter"):
                take(parameter)


def test_a_subclass_of_numpys_array_is_asked_by_its_own_dlpack():
    class Refusing(np.ndarray):
        def __dlpack__(self, **keywords):
            raise RuntimeError("mine alone")

    for take in (dlbridge.from_dlpack, _native._borrow):
        with pytest.raises(RuntimeError, match="mine alone"):
            take(np.ones(3).view(Refusing))


@pytest.mark.parametrize("mro", [KeyError, [1], None])
def test_a_metaclass_that_raises_for_its_mro_is_no_panic(mro):
    class Meta(type):
        @property
        def __mro__(cls):
            if mro is KeyError:
                raise mro
            return mro

    class Producer(metaclass=Meta):
        def __dlpack__(self, **keywords):
            return np.ones(2).__dlpack__(**keywords)

    assert dlbridge.from_dlpack(Producer()).tolist() == [1, 1]
