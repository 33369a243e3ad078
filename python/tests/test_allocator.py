"""Host memory for results is not shown to Python while Rust writes it."""

from __future__ import annotations

import pytest

example = pytest.importorskip("dlbridge_example", reason="the example extension is not installed")


def test_torch_shows_python_no_memory_that_rust_writes():
    """A mode (a profiler, functorch) could keep it, and see it change while Rust has a slice."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Keeping(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            seen.append(result)
            return result

    x = torch.ones(4096, 2)
    # The first import of a class calls functions of PyTorch.
    example.row_sums(x)
    with Keeping():
        sums = example.row_sums(x)
    assert [tensor for tensor in seen if isinstance(tensor, torch.Tensor)] == []
    assert type(sums) is torch.Tensor
    assert sums.data_ptr() % 64 == 0
    assert sums.sum() == 2 * 4096
