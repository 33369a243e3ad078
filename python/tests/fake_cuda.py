"""A framework's calls of the fake CUDA driver, for programs of `support.Driver`.

They are not in the driver's log, do not fail by its environment, and restore the context."""

from __future__ import annotations

import contextlib
import ctypes as C
import math

driver = C.CDLL("libcuda.so.1")
NON_BLOCKING = 1
GLOBAL, THREAD_LOCAL, RELAXED = range(3)


def check(code: int) -> None:
    name = C.c_char_p()
    driver.cuGetErrorName(code, C.byref(name))
    assert code == 0, name.value


def context(device: int) -> C.c_void_p:
    made = C.c_void_p()
    check(driver.cuDevicePrimaryCtxRetain(C.byref(made), device))
    return made


@contextlib.contextmanager
def on_device(device: int = 0):
    """Makes the primary context of a device current, as a framework does that is at work on it."""
    driver.fakeDriverQuiet(1)
    check(driver.cuInit(0))
    check(driver.cuCtxPushCurrent_v2(context(device)))
    try:
        yield
    finally:
        check(driver.cuCtxPopCurrent_v2(C.byref(C.c_void_p())))
        driver.fakeDriverQuiet(0)


def work_on(device: int) -> None:
    """Makes the primary context of a device current on this thread, for all that follows."""
    driver.fakeDriverQuiet(1)
    check(driver.cuInit(0))
    check(driver.cuCtxSetCurrent(context(device)))
    driver.fakeDriverQuiet(0)


def device() -> int:
    """The device whose context is current on this thread."""
    found = C.c_int()
    check(driver.cuCtxGetDevice(C.byref(found)))
    return found.value


def stream(device: int = 0, flags: int = NON_BLOCKING) -> int:
    made = C.c_size_t()
    with on_device(device):
        check(driver.cuStreamCreate(C.byref(made), flags))
    return made.value


def destroy(stream: int) -> None:
    with on_device():
        check(driver.cuStreamDestroy_v2(C.c_size_t(stream)))


def synchronize(stream: int) -> None:
    with on_device():
        check(driver.cuStreamSynchronize(C.c_size_t(stream)))


def copy(to: int, source: int, size: int, stream: int) -> None:
    """Queues a copy: what a kernel that reads `source` is to the order of work."""
    with on_device():
        numbers = map(C.c_size_t, (to, source, size, stream))
        check(driver.cuMemcpyDtoDAsync_v2(*numbers))


def fill(to: int, byte: int, size: int, stream: int) -> None:
    with on_device():
        numbers = C.c_size_t(size), C.c_size_t(stream)
        check(driver.cuMemsetD8Async(C.c_size_t(to), C.c_ubyte(byte), *numbers))


def join(stream: int, other: int) -> None:
    """Makes a stream wait for the work of another one."""
    event = C.c_size_t()
    with on_device():
        check(driver.cuEventCreate(C.byref(event), 2))
        check(driver.cuEventRecord(event, C.c_size_t(other)))
        check(driver.cuStreamWaitEvent(C.c_size_t(stream), event, 0))
        check(driver.cuEventDestroy_v2(event))


def read_late(tensor, stream: int):
    """Queues work that reads a float32 tensor, as a kernel does; a function has what it read."""
    size, made = 4 * math.prod(tensor.shape), C.c_size_t()
    with on_device():
        check(driver.cuMemAllocAsync(C.byref(made), C.c_size_t(size), C.c_size_t(stream)))
    copy(made.value, tensor.data_ptr, size, stream)

    def values(stream: int = stream) -> list[float]:
        synchronize(stream)
        return list((C.c_float * (size // 4)).from_address(made.value))

    return values


def capture(stream: int, mode: int = GLOBAL) -> None:
    with on_device():
        check(driver.cuStreamBeginCapture_v2(C.c_size_t(stream), mode))


def is_whole(stream: int) -> bool:
    """Whether the capture of a stream goes on."""
    status = C.c_int()
    with on_device():
        check(driver.cuStreamIsCapturing(C.c_size_t(stream), C.byref(status)))
    return status.value == 1


def end_capture(stream: int) -> int:
    graph = C.c_size_t()
    with on_device():
        check(driver.cuStreamEndCapture(C.c_size_t(stream), C.byref(graph)))
    return graph.value


def launch(graph: int, stream: int) -> None:
    with on_device():
        check(driver.cuGraphLaunch(C.c_size_t(graph), C.c_size_t(stream)))


def read(tensor, stream: int) -> list[float]:
    """The elements of a float32 tensor after the work on a stream."""
    copied = (C.c_float * len(tensor))()
    with on_device():
        numbers = map(C.c_size_t, (tensor.data_ptr, C.sizeof(copied), stream))
        check(driver.cuMemcpyDtoHAsync_v2(copied, *numbers))
    return list(copied)
