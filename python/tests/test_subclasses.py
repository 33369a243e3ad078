"""Subclasses of types that have a fast import path: what they override decides, not their base."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import dlbridge


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=240)


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        self.torch = pytest.importorskip("torch", reason="torch is not installed")

    def test_memory_that_moves_while_the_object_is_asked_is_imported_afterwards(self):
        """A PyTorch whose marks are not known is asked by `is_conj()`, which is Python code of a
        subclass. This one lacks a function by which they are looked for."""
        run(
            """
            import torch
            import dlbridge

            del torch._neg_view
            other = torch.zeros(5, dtype=torch.complex64)

            class Moving(torch.Tensor):
                def is_conj(self):
                    if move == "set_":
                        self.set_(other.untyped_storage(), 0, (5,), (1,))
                    else:
                        self.resize_(1 << 20)
                    return False

            class Silent(torch.Tensor):
                def is_conj(self):
                    raise AttributeError

            for move in ("set_", "resize_"):
                tensor = torch.ones(3, dtype=torch.complex64).as_subclass(Moving)
                before = tensor.data_ptr()
                facts = dlbridge.inspect(tensor)
                assert facts.data_ptr == tensor.data_ptr() != before
                assert tuple(facts.shape) == tuple(tensor.shape)

            complex_tensor = torch.ones(3, dtype=torch.complex64)
            for tensor, word in (
                (complex_tensor.conj(), "resolve_conj"),
                (complex_tensor.conj().imag, "resolve_neg"),
                (torch._efficientzerotensor((100_000,))[50_000:], "clone"),
            ):
                try:
                    dlbridge.inspect(tensor)
                except BufferError as error:
                    assert word in str(error), error
                else:
                    raise AssertionError(word)
            try:
                dlbridge.inspect(complex_tensor.as_subclass(Silent))
            except AttributeError:
                pass  # PyTorch's `__dlpack__` asks the same question.
            else:
                raise AssertionError("silent")
            """
        )

    def test_marks_are_read_without_methods_of_a_subclass(self):
        class Silent(self.torch.Tensor):
            def is_conj(self):
                raise AttributeError

        tensor = self.torch.ones(3, dtype=self.torch.complex64).as_subclass(Silent)
        assert dlbridge.from_dlpack(tensor).shape == (3,)
        with pytest.raises(BufferError, match="resolve_conj"):
            dlbridge.from_dlpack(tensor.conj())

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
        with pytest.raises(BufferError, match="mine alone"):
            dlbridge.from_dlpack(tensor.as_subclass(Refusing))

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
            with pytest.raises(BufferError, match="no __dlpack__"):
                dlbridge.from_dlpack(torch.ones(3).as_subclass(kind))

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
        with pytest.raises(ValueError, match="uninitialized parameter"):
            dlbridge.from_dlpack(parameter)


def test_a_subclass_of_numpys_array_is_asked_by_its_own_dlpack():
    class Refusing(np.ndarray):
        def __dlpack__(self, **keywords):
            raise RuntimeError("mine alone")

    with pytest.raises(RuntimeError, match="mine alone"):
        dlbridge.from_dlpack(np.ones(3).view(Refusing))


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
