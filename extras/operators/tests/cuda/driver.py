"""Streams and memory of the fake driver, whose device memory is the host's."""

import ctypes as C
import struct

cuda = C.CDLL("libcuda.so.1")
cuda.cuMemsetD8Async.argtypes = [C.c_void_p, C.c_ubyte, C.c_size_t, C.c_void_p]

# The frameworks have a context current on the thread that calls an operator.
context = C.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(C.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0


def new_stream():
    stream = C.c_void_p()
    assert cuda.cuStreamCreate(C.byref(stream), 1) == 0
    return stream


def synchronize(stream):
    assert cuda.cuStreamSynchronize(stream) == 0


def written_late(stream, memory, byte):
    """Queues the writing of each byte: nothing is written before the stream is waited for."""
    size = C.sizeof(memory)
    assert cuda.cuMemsetD8Async(C.addressof(memory), byte, size, stream) == 0


def floats(count, value=0.0):
    return (C.c_float * count)(*[value] * count)


(SEVENS,) = struct.unpack("f", bytes([7] * 4))
