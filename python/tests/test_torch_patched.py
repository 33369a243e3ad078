"""PyTorch's class without its table, with another one, and what stands in its place.

Each program is a process of its own, because the table is found once.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed")

HEAD = """
import torch

import dlbridge

class Impostor:
    __slots__ = ("a", "b", "c")
    __dlpack_c_exchange_api__ = torch.Tensor.__dlpack_c_exchange_api__
    __dlpack__ = torch.Tensor.__dlpack__

def refused(x, why):
    try:
        taken = dlbridge.from_dlpack(x)
    except (AttributeError, BufferError, RuntimeError) as error:
        assert why in str(error), error
    else:
        raise AssertionError(taken)

def refuses_all():
    refused(torch._neg_view(torch.ones(2)), "resolve_neg")
    refused(torch._efficientzerotensor((2**32 + 4,))[100_000:100_004], "without memory")
    assert dlbridge.from_dlpack(torch.ones(2)).tolist() == [1, 1]
"""

PROGRAMS = {
    # Its fields were read as PyTorch's, which ended the process.
    "a class in the place of torch.Tensor": """
torch.Tensor = Impostor
refused(Impostor(), "")
""",
    "a class in the place of torch.Tensor, later": """
dlbridge.from_dlpack(torch.ones(2))
torch.Tensor = Impostor
refused(Impostor(), "")
""",
    # What a mode answered was read as a tensor of PyTorch.
    "a mode that answers with other objects": """
from torch.overrides import TorchFunctionMode

class Liar:
    __slots__ = ("first",)

    def __init__(self):
        self.first = b"A" * 400

    def requires_grad_(self, requires):
        return self

class Lies(TorchFunctionMode):
    zeros = 0

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        self.zeros += function is torch.zeros
        return Liar() if self.zeros > 1 else function(*arguments, **(keywords or {}))

with Lies():
    assert dlbridge.from_dlpack(torch.ones(3)).tolist() == [1, 1, 1]
refuses_all()
""",
    # PyTorch warned of reading the address of a fake tensor.
    "a first import in a mode of fake tensors": """
from torch._subclasses import FakeTensorMode

x = torch.ones(3)
with FakeTensorMode():
    dlbridge.from_dlpack(x)
refuses_all()
""",
    # Objects with the table that PyTorch's class had were asked as tensors of PyTorch.
    "another table at first": """
torch.Tensor.__dlpack_c_exchange_api__ = dlbridge.Tensor.__dlpack_c_exchange_api__
assert dlbridge.from_dlpack(torch.ones(2)).tolist() == [1, 1]
for kind in ("float32", "complex64"):
    assert dlbridge.inspect(dlbridge.zeros(3, dtype=kind)).shape == (3,)
refuses_all()
""",
    # A negated tensor came with its numbers before that.
    "another table later": """
refuses_all()
torch.Tensor.__dlpack_c_exchange_api__ = dlbridge.Tensor.__dlpack_c_exchange_api__
refuses_all()
""",
    "no table for a while, and a method that was patched": """
table = torch.Tensor.__dlpack_c_exchange_api__
refuses_all()
del torch.Tensor.__dlpack_c_exchange_api__
refuses_all()
torch.Tensor.__dlpack_c_exchange_api__ = table
refuses_all()
assert dlbridge.inspect(torch.ones(2)).protocol == "C exchange API"
own = torch.Tensor.__dlpack__
torch.Tensor.__dlpack__ = lambda self, **keywords: own(self, **keywords)
refuses_all()
""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_patched_pytorch_gives_no_wrong_values(program):
    command = [sys.executable, "-c", HEAD + PROGRAMS[program]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
