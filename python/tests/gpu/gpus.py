"""What the tests on a GPU share: finding one, and skipping with the reason where there is none.

Plain unittest, since the machines with GPUs need not have pytest.
"""

from __future__ import annotations

import ctypes
import importlib
import unittest
from types import ModuleType


def missing() -> str | None:
    """Why nothing can run on a GPU here; None where it can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no CUDA driver: {error}"
    if code := driver.cuInit(0):
        return f"no GPU: cuInit says {code}"
    count = ctypes.c_int()
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    return None if count.value else f"no GPU: cuDeviceGetCount says {code}"


def framework(name: str) -> ModuleType:
    """A framework that can use the GPU; skips the test where there is none."""
    if reason := missing():
        raise unittest.SkipTest(reason)
    return installed(name)


def installed(name: str) -> ModuleType:
    """A package; skips the test where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise unittest.SkipTest(f"no {name}: {error}") from None
