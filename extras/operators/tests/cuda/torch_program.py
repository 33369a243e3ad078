"""`my` has the operators. PyTorch's C shim is a fake, which makes tensors on CUDA without a GPU. The kernels that the
operators register there, the driver's queues and the operators are real."""
# ruff: noqa: F821

import math
import threading

i64, i32 = C.c_int64, C.c_int32
CPU, CUDA, FLOAT, INT = 0, 1, 6, 3
torch = C.CDLL(torch_library)
torch.find.restype = C.c_void_p
current = C.c_void_p.in_dll(torch, "current_stream")
number = lambda name: i32.in_dll(torch, name)
message = (C.c_char * 1024).in_dll(torch, "message")


class Tensor(C.Structure):
    _fields_ = (
        ("ndim", i64),
        ("sizes", i64 * 4),
        ("strides", i64 * 4),
        ("dtype", i32),
        ("device", i32),
        ("index", i32),
        ("data", C.c_void_p),
    )


for name in ("copy", "second", "hasty", "clear_", "tells", "hosts"):
    getattr(my, name)._register(torch_library, lambda: None, torch_library, None)
promised = C.c_uint64.in_dll(torch, "promised").value
assert promised >> 48 == 0x020F, "kernels are those of a PyTorch that was tested"


def tensor(memory, shape, strides=None, device=(CUDA, 0), dtype=FLOAT):
    """A handle that the kernel owns."""
    made, ndim = C.POINTER(Tensor)(), len(shape)
    steps = strides or [math.prod(shape[at + 1 :]) for at in range(ndim)]
    lists = (i64 * ndim)(*shape), (i64 * ndim)(*steps)
    torch.aoti_torch_empty_strided(i64(ndim), *lists, dtype, *device, C.byref(made))
    made.contents.data = C.addressof(memory)
    return C.addressof(made.contents)


def call(name, arguments, key=b"CUDA"):
    """Calls a kernel; its error, or its result as a `Tensor`."""
    words = [
        struct.unpack("Q", struct.pack("d", word))[0]
        if isinstance(word, float)
        else word
        for word in arguments
    ]
    stack = (C.c_uint64 * max(len(words), 1))(*words)
    message.value = b""
    kernel = torch.find(key, name.encode())
    C.CFUNCTYPE(None, C.c_void_p, C.c_uint64, C.c_uint64)(kernel)(stack, len(words), 1)
    assert number("guards").value == 0, "the device guard is deleted"
    if message.value:
        assert number("live").value == 0, "all arguments are deleted"
        return message.value.decode()
    if name.endswith("_"):
        assert number("live").value == 0
        return None
    assert number("live").value == 1
    result = Tensor.from_buffer_copy(C.string_at(stack[0], C.sizeof(Tensor)))
    torch.aoti_torch_delete_tensor_object(C.c_void_p(stack[0]))
    return result


def values(result, count):
    return list((C.c_float * count).from_address(result.data))


# The work of before, of the operator and of afterwards is in one queue, for which the operator does not wait.
stream = new_stream()
current.value = stream.value
x = floats(6)
written_late(stream, x, 7)
out = call("copy", [tensor(x, (2, 3))])
assert (out.device, out.index, out.dtype) == (CUDA, 0, FLOAT)
assert list(out.sizes[:2]) == [2, 3] and list(out.strides[:2]) == [3, 1]
assert values(out, 6) == [0.0] * 6 == list(x), "nothing is waited for"
synchronize(stream)
assert values(out, 6) == [SEVENS] * 6
assert (number("stream_index").value, number("guarded").value) == (0, 0)

# An operator that forgets the stream reads what was there before.
x = floats(6)
written_late(stream, x, 7)
out = call("hasty", [tensor(x, (6,))])
synchronize(C.c_void_p())
synchronize(stream)
assert values(out, 6) == [0.0] * 6

# In place.
x = floats(4, 3.0)
assert call("clear_", [tensor(x, (4,))]) is None
assert list(x) == [3.0] * 4
synchronize(stream)
assert list(x) == [0.0] * 4
error = call("clear_", [tensor(x, (2, 4), (0, 1))])
assert "expected elements that are written once" in error, error

# Strides of any kind: an expanded gradient, transposed axes, gaps. What is contiguous is not copied.
assert number("copies").value == 0
for shape, strides, expected in [
    ((2, 3), (0, 0), [0, 0, 0, 0, 0, 0]),
    ((2, 3), (1, 2), [0, 2, 4, 1, 3, 5]),
    ((2, 2), (3, 2), [0, 2, 3, 5]),
    ((2, 1, 3), (3, 7, 1), [0, 1, 2, 3, 4, 5]),
]:
    x = (C.c_float * 6)(*range(6))
    out = call("copy", [tensor(x, shape, strides)])
    assert values(out, len(expected)) == [0.0] * len(expected), "nothing is waited for"
    synchronize(stream)
    assert values(out, len(expected)) == expected, (shape, strides)
    assert list(out.sizes[: len(shape)]) == list(shape)
assert number("copies").value == 3

# Operands of other shapes.
x, y = floats(2), (C.c_float * 3)(*range(3))
out = call("second", [tensor(x, (2, 1)), tensor(y, (3,))])
synchronize(stream)
assert values(out, 6) == [0, 1, 2] * 2 and list(out.sizes[:2]) == [2, 3]

# In place with gaps: the values are where they belong, and nowhere else.
x = floats(8, 3.0)
assert call("clear_", [tensor(x, (2, 2), (4, 2))]) is None
assert list(x) == [3.0] * 8
synchronize(stream)
assert list(x) == [0.0, 3.0] * 4

# A thread without a current context, such as autograd's; afterwards the former one is current.
cuda.cuCtxGetCurrent.argtypes = [C.POINTER(C.c_void_p)]


def current_context():
    found = C.c_void_p()
    assert cuda.cuCtxGetCurrent(C.byref(found)) == 0
    return found.value


def on_a_thread():
    assert current_context() is None
    found.append(call("copy", [tensor(x, (2, 2), (1, 2))]))
    assert current_context() is None


found, x = [], (C.c_float * 4)(*range(4))
thread = threading.Thread(target=on_a_thread)
thread.start()
thread.join()
synchronize(stream)
assert values(found[0], 4) == [0, 2, 1, 3]

# A graph that is captured, and runs twice. The gradient is an operator as well.
for mode in range(3):
    x = floats(4)
    assert cuda.cuStreamBeginCapture_v2(stream, mode) == 0
    out = call("copy", [tensor(x, (2, 2), (1, 2))])
    out = call("second", [tensor(x, (1,)), tensor(x, (4,))])
    graph, runs = C.c_void_p(), C.c_void_p()
    assert cuda.cuStreamEndCapture(stream, C.byref(graph)) == 0
    assert cuda.cuGraphInstantiateWithFlags(C.byref(runs), graph, C.c_ulonglong(0)) == 0
    for value in (7.0, 5.0):
        x[:] = [value] * 4
        assert cuda.cuGraphLaunch(runs, stream) == 0
        synchronize(stream)
        assert values(out, 4) == [value] * 4

# The function sees the leading axes of the call, once, and the device of all.
x, y = floats(6), floats(12)
on = lambda index: [
    tensor(x, (2, 1, 3), device=(CUDA, index)),
    tensor(y, (2, 3), (1, 2), device=(CUDA, index)),
]
told = call("tells", [*on(1), 0, 0.5])
shape = "([2, 2, 3], [3, 0, 1])", "([2, 2, 3], [0, 1, 2])"
expected = ", ".join(f"Some({one})" for one in shape)
assert (
    told == f"tells: [{expected}, None, Some(([2, 2], [2, 1]))] 0.5 on cuda:1 of cuda:1"
), told
assert (number("stream_index").value, number("guarded").value) == (1, 1)
told = call("tells", [*on(0), 0, -0.5])
assert told.startswith("tells panicked: a negative factor"), told

# Devices that differ, and dtypes.
for other, found in (
    ((CPU, -1), "cpu"),
    ((CUDA, 1), "cuda:1"),
    ((12, 0), "another device"),
):
    first = tensor(x, (2, 1, 3))
    told = call("tells", [first, tensor(y, (2, 3), device=other), 0, 0.5])
    assert told == (
        f'tells: expected all tensors on cuda:0, found one on {found}; use x.to("cuda:0")'
    ), told
error = call("copy", [tensor(x, (6,), dtype=INT)])
assert "expected x: float32 or x: float64, found int32" in error, error

# The same operator on the host, and one that has nothing else.
x = floats(3, 5.0)
out = call("copy", [tensor(x, (3,), device=(CPU, -1))], b"CPU")
assert values(out, 3) == [5.0] * 3 and (out.device, out.index) == (CPU, -1)
error = call("hosts", [tensor(x, (3,))])
assert error == (
    "hosts: expected memory on cpu, found memory on cuda; pass x.cpu(), or declare `cuda = ...` in Rust"
), error
