"""CUDA slices that an extension makes with cudarc, in Python: consumers wait for their stream.

No GPU has run this: the driver is played, and its streams work as late as they may.
"""

from __future__ import annotations

import pytest

import fake_driver

example = pytest.importorskip("dlbridge_example", reason="the example extension is not installed")
if not hasattr(example, "filled"):
    pytest.skip("the example extension is built without CUDA", allow_module_level=True)


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return fake_driver.Driver(tmp_path_factory.mktemp("driver"), fake_driver.IS_LATE)


HEAD = """
import ctypes
import dlbridge, dlbridge_example as example

driver = ctypes.CDLL("libcuda.so.1")

def stream():
    made = ctypes.c_void_p()
    assert driver.cuStreamCreate(ctypes.byref(made), 1) == 0
    return made.value

def read(tensor, stream):
    # The memory of the device that is played is the host's.
    assert driver.cuStreamSynchronize(ctypes.c_void_p(stream)) == 0
    return list((ctypes.c_float * len(tensor)).from_address(tensor.data_ptr))

ours = stream()
x = example.filled(3, 7.0)
"""

WAITS = {
    "a stream": "t = dlbridge.from_dlpack(x, stream=ours)\nprint(read(t, ours))\n",
    "the default stream": "t = dlbridge.from_dlpack(x)\nprint(read(t, 1))\n",
    "a second consumer": "dlbridge.from_dlpack(x, stream=stream())\n"
    "t = dlbridge.from_dlpack(x, stream=ours)\nprint(read(t, ours))\n",
    "the consumer of a consumer": "t = dlbridge.from_dlpack(x, stream=stream())\n"
    "t = dlbridge.from_dlpack(t, stream=ours)\nprint(read(t, ours))\n",
    "an object of the same kind": "t = example.convert(x, x)\n"
    "t = dlbridge.from_dlpack(t, stream=ours)\nprint(read(t, ours))\n",
}


@pytest.mark.parametrize("code", WAITS.values(), ids=WAITS)
def test_a_consumer_of_a_slice_waits_for_its_stream(driver, code):
    driver.run(HEAD + code)
    assert driver.output == "[7.0, 7.0, 7.0]\n"
    driver.run(HEAD + code, forgets="cuStreamWaitEvent")
    assert driver.output != "[7.0, 7.0, 7.0]\n", "the driver is late"


def test_it_is_a_tensor_on_the_device(driver):
    driver.run(HEAD + "print(x, x.__dlpack_device__(), hex(x.data_ptr) != '0x0')\n")
    described = "dlbridge.Tensor(shape=(3,), dtype=float32, device=cuda:0)"
    assert driver.output == f"{described} (2, 0) True\n"


def test_a_stream_that_is_told_counts_instead(driver):
    driver.run(HEAD + "t = dlbridge.from_dlpack(x, stream=-1)\nprint(read(t, ours))\n")
    assert driver.output != "[7.0, 7.0, 7.0]\n", "nobody waits who does not want to"


def test_the_memory_is_freed_when_the_last_tensor_is_gone(driver):
    driver.run(
        HEAD + "t = dlbridge.from_dlpack(x, stream=ours)\ndel x\nprint(read(t, ours))\n"
        "at = t.data_ptr\ndel t\n"
    )
    assert driver.output == "[7.0, 7.0, 7.0]\n"


def test_a_device_that_is_not_there_is_said(driver):
    driver.run(
        HEAD + "try:\n    example.filled(3, 7.0, device=1)\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    assert "driver: opening the device" in driver.output
