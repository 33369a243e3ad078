"""`my` has the operators."""
# ruff: noqa: F821

import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

is_new = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)
compiler = shutil.which("c++") or shutil.which("g++")
warnings.filterwarnings("error", "There is a performance drop")
x = torch.arange(6.0).reshape(2, 3)
assert torch.equal(my.scale(x.t(), 2.0), x.t() * 2)
assert torch.equal(torch.ops.my_operators.scale(x, 3.0), x * 3)
assert my.scale.torch is torch.ops.my_operators.scale

a, b = (
    torch.rand(5, 1, 2, 3, dtype=torch.float64),
    torch.rand(4, 7, 3, dtype=torch.float64),
)
expected = (a[..., :, None, :] - b[..., None, :, :]).square().sum(-1)
torch.testing.assert_close(my.distances(a, b), expected)


def raises(message, function, *arguments):
    try:
        function(*arguments)
    except RuntimeError as error:
        assert message in str(error), str(error)
    else:
        raise AssertionError(f"{message}: not raised")


for _ in range(10):
    raises("scale: factor: expected a positive number", my.scale, x, -1.0)
    raises("panics panicked: as asked", my.panics, x)
    raises(
        "scale: expected x: float32 or x: float64, found int32", my.scale, x.int(), 1.0
    )
    raises(
        "distances: b: expected 3 along the axis d, found 4",
        my.distances,
        x,
        torch.ones(2, 4),
    )

raises(
    "PyTorch cannot allocate float32[1099511627776]: ",
    my.scale,
    torch.ones(1).expand(2**40),
    1.0,
)
why = "you tried to allocate" if is_new else ""
raises(why, my.scale, torch.ones(1).expand(2**40), 1.0)


def out_of_memory(function):
    """It is PyTorch's error, which programs catch to free memory; before PyTorch 2.14 the class is lost."""
    try:
        function()
    except RuntimeError as error:
        assert isinstance(error, torch.OutOfMemoryError) == is_new
        assert str(error) == "lacks: CUDA out of memory. Tried to allocate 4.00 TiB."
    else:
        raise AssertionError("not raised")
    assert torch.equal(my.keeps(x), x), "no exception is left"


needs = x.clone().requires_grad_()
for _ in range(10):
    out_of_memory(lambda: my.lacks(x, x))
    out_of_memory(lambda: torch.ops.my_operators.lacks(x, x))
    out_of_memory(lambda: my.lacks(needs, x))
    out_of_memory(lambda: my.keeps(needs).sum().backward())
    with torch.no_grad():
        out_of_memory(lambda: my.lacks(x, x))
    with torch.inference_mode():
        out_of_memory(lambda: my.lacks(x, x))
    with ThreadPoolExecutor() as pool:
        pool.submit(out_of_memory, lambda: my.lacks(x, x)).result()
raises(
    "scale_backward has no gradient: declare",
    lambda: my.scale_backward(x, x.clone().requires_grad_(), 2.0).sum().backward(),
)

# Of CUDA memory: the compiler knows the device of the result, and the operator has no function for it.
with torch._subclasses.FakeTensorMode():
    assert my.scale(torch.ones(2, device="cuda"), 2.0).device == torch.device("cuda:0")
on_cuda = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
raises(
    "scale: expected memory on cpu, found memory on cuda; pass x.cpu(), or declare",
    my.scale.torch.default.redispatch,
    on_cuda,
    x,
    2.0,
)

# Gradients, also of an operand that is broadcast.
a.requires_grad_(), b.requires_grad_()
assert torch.autograd.gradcheck(my.distances, (a, b))
assert torch.autograd.gradcheck(lambda a: my.scale(a, 2.0), (a,))

jacobian = torch.autograd.functional.jacobian
row = torch.rand(3, dtype=torch.float64)
for vectorize in (False, True):
    torch.testing.assert_close(
        jacobian(my.softmax.torch, row, vectorize=vectorize),
        jacobian(lambda row: row.softmax(-1), row),
    )

# vmap over either operand, and over both.
a, b = a.detach(), b.detach()
p, q = torch.rand(6, 2, 3), torch.rand(6, 7, 3)
each = torch.stack([my.distances(one, other) for one, other in zip(p, q)])
torch.testing.assert_close(torch.vmap(my.distances.torch)(p, q), each)
torch.testing.assert_close(
    torch.vmap(my.distances.torch, (None, 0))(p[0], q), my.distances(p[0], q)
)
torch.testing.assert_close(
    torch.vmap(my.distances.torch, (1, None))(p.movedim(0, 1), q),
    torch.stack([my.distances(one, q) for one in p]),
)

# From PyTorch 2.14 on, autograd needs no Python for tensors without gradients.
dump = torch._C._dispatch_dump("my_operators::scale")
registered = next(line for line in dump.splitlines() if line.startswith("Autograd"))
assert ("registered at dlbridge" in registered) == is_new, dump
(of_leaf,) = torch.autograd.grad(my.scale(x.requires_grad_(), 3.0).sum(), x)
assert (of_leaf == 3).all() and my.scale(x.detach(), 3.0).grad_fn is None
with torch.no_grad():
    assert not my.scale(x, 3.0).requires_grad
x.requires_grad_(False)

for operator, arguments in [
    (my.scale, (x.requires_grad_(), 2.0)),
    (my.distances, (p.requires_grad_(), q)),
]:
    checked = torch.library.opcheck(operator.torch.default, arguments)
    assert set(checked.values()) == {"SUCCESS"}, checked

# In place.
changed = torch.arange(6.0).reshape(2, 3)
version = changed._version
assert my.scale_(changed[:, ::2], 3.0) is None and changed._version > version
assert changed.tolist() == [[0, 1, 6], [9, 4, 15]]
raises("that is written, found [3]", my.add_, changed[0].clone(), changed)
raises("more than once", my.scale_, changed[0].expand(2, 3), 3.0)
raises("that no other argument has", my.add_, changed, changed)
raises("pass x.detach()", my.scale_, torch.ones(2, requires_grad=True), 3.0)
with torch.no_grad():
    my.scale_(torch.ones(2, requires_grad=True), 3.0)
with torch.inference_mode():
    my.scale_(torch.ones(2), 3.0)
mapped = torch.ones(4, 2)


def adding(x, y):
    my.add_.torch(x, y)
    return x


torch.vmap(adding)(mapped, torch.arange(8.0).reshape(4, 2))
assert mapped.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
torch.vmap(adding, (1, None))(mapped, torch.ones(4))
assert mapped.tolist() == [[2, 3], [4, 5], [6, 7], [8, 9]]
raises(
    "that is written, found [1, 2]",
    torch.vmap(adding, (None, 0)),
    mapped[0].clone(),
    mapped,
)


def changing(x, y):
    x = x.clone()
    my.add_.torch(x, y)
    my.scale_.torch(y, 2.0)
    return x.sum() + y.sum()


for backend in ("aot_eager", "inductor") if compiler else ("aot_eager",):
    one, other = torch.ones(3), torch.ones(3)
    compiled = torch.compile(changing, backend=backend, fullgraph=True)
    assert compiled(torch.ones(3), one) == changing(torch.ones(3), other)
    assert torch.equal(one, other) and one[0] == 2

# Several results, of which one is used, and optional tensors.
w, bias = torch.rand(4, 3, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
torch.testing.assert_close(my.affine(a, w, bias), a @ w.t() + bias)
torch.testing.assert_close(my.affine(a, w), a @ w.t())
inputs = [tensor.requires_grad_() for tensor in (a.clone(), w, bias)]
index = torch.tensor([2, 0, 2])
assert torch.autograd.gradcheck(lambda a: my.take(a, index), (w,))
assert torch.autograd.gradcheck(my.softmax, (a.clone().requires_grad_(),))
torch.testing.assert_close(my.softmax(a), a.softmax(-1))
low, high = my.extremes(a)
assert torch.equal(low, a.amin(-1)) and torch.equal(high, a.amax(-1))
checks = [
    (my.take, (w, index)),
    (my.extremes, (a,)),
    (my.add_, (torch.ones(3), torch.ones(3))),
]
try:
    affine = my.affine.torch
except ImportError as error:
    assert "expected PyTorch 2.13 or newer" in str(error)
else:
    assert torch.autograd.gradcheck(affine, inputs)
    assert torch.autograd.gradcheck(lambda a, w: affine(a, w, None), inputs[:2])
    mapped = torch.vmap(affine, (0, None, None))(a, w, None)
    torch.testing.assert_close(mapped, a @ w.t())
    checks += [(my.affine, (a, w, bias)), (my.affine, (a, w, None))]
for operator, arguments in checks:
    checked = torch.library.opcheck(operator.torch.default, arguments)
    assert set(checked.values()) == {"SUCCESS"}, checked


def step(a, b):
    return my.scale.torch(my.distances.torch(a, b), 0.5).sum() + 1


p = p.detach().requires_grad_()
eager = step(p, q)
(of_p,) = torch.autograd.grad(eager, p)
for dynamic in (False, True):
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    torch.testing.assert_close(compiled(p, q), eager)
    torch.testing.assert_close(torch.autograd.grad(compiled(p, q), p)[0], of_p)
    torch.testing.assert_close(compiled(p[:2], q[:2]), step(p[:2], q[:2]))

if compiler:
    compiled = torch.compile(
        step, fullgraph=True
    )  # by inductor, which needs a compiler for C++
    torch.testing.assert_close(compiled(p, q), eager)
else:
    print("skipped: no compiler for C++")

# The shape rule of Python (`shapes.py`), which compilers need, is that of Rust (`signature.rs`).
random = np.random.default_rng(0)


def shape(operator, shapes, empty, dtype, **options):
    try:
        return tuple(
            operator(*(empty(one, dtype=dtype, **options) for one in shapes)).shape
        )
    except (RuntimeError, TypeError, ValueError):
        return None


found = []
for operator in [my.distances, my.affine, my.plus] * 500:
    shapes = [
        random.integers(0, 3, random.integers(0, 5)).tolist() for _ in operator._names
    ]
    found.append(shape(operator, shapes, np.empty, np.float64))
    assert found[-1] == shape(
        operator, shapes, torch.empty, torch.float64, device="meta"
    )
assert 50 < sum(one is not None for one in found) < 1400

exported = torch.export.export(
    type("Model", (torch.nn.Module,), {"forward": lambda self, a, b: step(a, b)})(),
    (p.detach(), q),
)
assert any("distances" in str(node.target) for node in exported.graph.nodes)
torch.testing.assert_close(exported.module()(p, q), eager)
assert (
    my.scale(torch.ones(2, 0), 2.0).shape == (2, 0)
    and my.scale(torch.tensor(3.0), 2.0) == 6
)
