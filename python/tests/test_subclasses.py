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
    @pytest.mark.parametrize("take", [_native._lend, dlbridge.inspect])
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
            _native._lend(tensor)
        assert np.from_dlpack(dlbridge.from_dlpack(self.torch.ones(3))).tolist() == [1, 1, 1]
