"""`my` has the operators. The frames of calls are made here as XLA's header declares them: XLA calls no handler for
CUDA without a GPU. The handler, the driver's queues and the operators are real."""
# ruff: noqa: F821

vp, i64, i32, sz = C.c_void_p, C.c_int64, C.c_int32, C.c_size_t


def structure(*fields):
    return type("Structure", (C.Structure,), {"_fields_": list(fields)})


head = [("size", sz), ("extension", vp)]
Version = structure(*head, ("major", C.c_int), ("minor", C.c_int))
Buffer = structure(
    *head, ("dtype", i32), ("data", vp), ("rank", i64), ("dims", C.POINTER(i64))
)
List = structure(*head, ("len", i64), ("kinds", vp), ("values", vp))
Attributes = structure(
    *head, ("len", i64), ("kinds", vp), ("names", vp), ("values", vp)
)
Text = structure(("data", C.c_char_p), ("len", sz))
Number = structure(("dtype", i32), ("value", vp))
Get = structure(*head, ("context", vp), ("found", vp))
Ordinal = structure(*head, ("context", vp), ("found", i32))
Create = structure(*head, ("message", C.c_char_p), ("code", i32))
Destroy = structure(*head, ("error", vp))
# The entries behind the head, in the order of the header: 0 creates an error, 2 destroys one, 4 has the stream, 17
# the device.
Api = structure(*head, ("version", Version), ("internal", vp), ("entries", vp * 18))
Frame = structure(
    *head,
    ("api", C.POINTER(Api)),
    ("context", vp),
    ("stage", i32),
    ("arguments", List),
    ("results", List),
    ("attributes", Attributes),
)
errors, destroyed, CONTEXT = [], [], 0x1234
state = {"stream": None, "device": 0, "fails": False}


@C.CFUNCTYPE(vp, C.POINTER(Create))
def create(arguments):
    errors.append(arguments.contents.message.decode())
    return 1


@C.CFUNCTYPE(None, C.POINTER(Destroy))
def destroy(arguments):
    destroyed.append(arguments.contents.error)


@C.CFUNCTYPE(vp, C.POINTER(Get))
def stream_get(arguments):
    assert arguments.contents.size == 32 and arguments.contents.context == CONTEXT
    arguments.contents.found = state["stream"]
    return 77 if state["fails"] else None


@C.CFUNCTYPE(vp, C.POINTER(Ordinal))
def ordinal_get(arguments):
    assert arguments.contents.context == CONTEXT
    arguments.contents.found = state["device"]


api = Api(size=C.sizeof(Api))
for place, function in ((0, create), (2, destroy), (4, stream_get), (17, ordinal_get)):
    api.entries[place] = C.cast(function, vp).value
pointer = C.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = vp, [C.py_object, C.c_char_p]


def buffers(tensors):
    """A list of float32 buffers of these memories and shapes."""
    made = []
    for memory, shape in tensors:
        dims = (i64 * len(shape))(*shape)
        dims = C.cast(dims, C.POINTER(i64))
        made.append(Buffer(48, None, 11, C.addressof(memory), len(shape), dims))
    places = (vp * len(made))(*map(C.addressof, made))
    found = List(C.sizeof(List), None, len(made), None, C.addressof(places))
    found.keep = (made, places)
    return found


def attributes(values):
    """Numbers by name: a float is a float64, a bool a bool."""
    keep, names, numbers = [], [], []
    for name, value in values.items():
        number = C.c_bool(value) if isinstance(value, bool) else C.c_double(value)
        dtype = 1 if isinstance(value, bool) else 12
        keep += [number, Text(name.encode(), len(name))]
        names.append(C.addressof(keep[-1]))
        keep.append(Number(dtype, C.addressof(number)))
        numbers.append(C.addressof(keep[-1]))
    count = len(names)
    lists = (i32 * count)(*[3] * count), (vp * count)(*names), (vp * count)(*numbers)
    found = Attributes(C.sizeof(Attributes), None, count, *map(C.addressof, lists))
    found.keep = (keep, lists)
    return found


def call(operator, arguments, results, platform=1, **values):
    """Calls a handler; its error, or `None`."""
    target = pointer(operator._targets[platform], b"xla._CUSTOM_CALL_TARGET")
    lists = buffers(arguments), buffers(results), attributes(values)
    frame = Frame(C.sizeof(Frame), None, C.pointer(api), CONTEXT, 3, *lists)
    errors.clear()
    # Without the GIL, as XLA calls it.
    failed = C.CFUNCTYPE(vp, C.POINTER(Frame))(target)(C.byref(frame))
    assert bool(failed) == bool(errors)
    return errors[0] if errors else None


# The work of before, of the operator and of afterwards is in one queue, for which the operator does not wait.
stream = new_stream()
state["stream"] = stream.value
x, out, later = floats(6), floats(6, 1.0), floats(6, 2.0)
written_late(stream, x, 7)
assert call(my.copy, [(x, (2, 3))], [(out, (2, 3))]) is None
assert list(out) == [1.0] * 6 and list(x) == [0.0] * 6, "nothing is waited for"
synchronize(stream)
assert list(out) == [SEVENS] * 6

# An operator that forgets the stream reads what was there before.
x, out = floats(6), floats(6, 1.0)
written_late(stream, x, 7)
assert call(my.hasty, [(x, (6,))], [(out, (6,))]) is None
synchronize(C.c_void_p())
synchronize(stream)
assert list(out) == [0.0] * 6

# What is broadcast is contiguous: JAX's half does that, because XLA copies nothing for a handler.
import jax

y = jax.ShapeDtypeStruct((3,), "float32")
x = jax.ShapeDtypeStruct((2, 1), "float32")
checks = [jax.export.DisabledSafetyCheck.custom_call("my.second")]
for platform, operand in (("cpu", "tensor<1x3xf32>"), ("cuda", "tensor<2x3xf32>")):
    lower = jax.export.export(
        jax.jit(my.second), platforms=[platform], disabled_checks=checks
    )
    lines = str(lower(x, y).mlir_module()).splitlines()
    line = next(line for line in lines if "my.second" in line)
    assert f", {operand}) -> tensor<2x3xf32>" in line, line
out = floats(6)
error = call(my.second, [(floats(2), (2, 1)), (floats(3), (1, 3))], [(out, (2, 3))])
assert "found some that are broadcast to [2, 3]; use jnp.broadcast_to" in error, error

# In place: the result has the argument's memory.
x, other = floats(4, 3.0), floats(4)
assert call(my.clear_, [(x, (4,))], [(x, (4,))]) is None
assert list(x) == [3.0] * 4
synchronize(stream)
assert list(x) == [0.0] * 4
error = call(my.clear_, [(x, (4,))], [(other, (4,))])
assert "expected the result in place to have the memory of its argument" in error, error

# A result in the memory of another argument is refused before it is written.
x, y = floats(4, 3.0), floats(4, 5.0)
error = call(my.add_, [(y, (4,)), (x, (4,))], [(y, (4,))], platform=0)
assert "expected a result with memory of its own" in error, error
assert list(y) == [5.0] * 4 and list(x) == [3.0] * 4

# The function sees the leading axes of the call, once.
x, y, z, out = floats(6), floats(12), floats(1), floats(4)
tensors = [(x, (2, 1, 3)), (y, (2, 3))]
told = call(my.tells, [*tensors, (z, ())], [(out, (2, 2))], z=True, factor=0.5)
shape = (
    "([2, 2, 3], [3, 0, 1])",
    "([2, 2, 3], [0, 3, 1])",
    "([2, 2], [0, 0])",
    "([2, 2], [2, 1])",
)
expected = ", ".join(f"Some({one})" for one in shape)
assert told == f"tells: [{expected}] 0.5 on cuda:0 of cuda:0", told
told = call(my.tells, tensors, [(out, (2, 2))], z=False, factor=0.5)
assert "None" in told, told
told = call(my.tells, tensors, [(out, (2, 2))], z=False, factor=-0.5)
assert told.startswith("tells panicked: a negative factor"), told
broadcast = call(my.tells, tensors, [(out, (2, 3))], z=False, factor=0.5)
assert "expected an output float32[2, 2], found float32[2, 3]" in broadcast, broadcast

# No elements, no launch: the driver has no launch of no threads.
assert (
    call(my.tells, [(x, (0, 3)), (y, (1, 3))], [(out, (0,))], z=False, factor=1.0)
    is None
)

# The same operator on the host, and one that has nothing else.
x, out = floats(3, 5.0), floats(3)
assert call(my.copy, [(x, (3,))], [(out, (3,))], platform=0) is None
assert list(out) == [5.0] * 3
error = call(my.hosts, [(x, (3,))], [(out, (3,))])
assert error == (
    "hosts: expected memory on cpu, found memory on cuda; "
    'pass jax.device_put(x, jax.devices("cpu")[0]), or declare `cuda = ...` in Rust'
), error


class Far:
    @property
    def __cuda_array_interface__(self):
        data = (C.addressof(x), False)
        return {"shape": (3,), "typestr": "<f4", "data": data, "version": 3}


# Arrays of other frameworks bring no stream.
try:
    my.copy(Far())
except TypeError as failure:
    assert "or a tensor of PyTorch or JAX, found memory on cuda:0; copy it" in str(
        failure
    ), failure
else:
    raise AssertionError("not raised")

# Devices: that of the call is told, and one that the driver does not have is an error.
state["device"] = 1
told = call(my.tells, tensors, [(out, (2, 2))], z=False, factor=0.5)
assert told.endswith("on cuda:1 of cuda:1"), told
state["device"] = 7
error = call(my.copy, [(x, (3,))], [(out, (3,))])
assert "cuDeviceGet failed with CUDA_ERROR_INVALID_DEVICE" in error, error
state["device"] = 0
state["fails"] = True
error = call(my.copy, [(x, (3,))], [(out, (3,))])
assert error == "copy: expected a call on a CUDA stream, found one without", error
assert destroyed == [77]
state["fails"] = False
api.size -= 8
error = call(my.copy, [(x, (3,))], [(out, (3,))])
assert error.startswith("copy: expected a JAX that tells an operator its device"), error
