"""Python code that runs during the first call of a function may call the same function."""

from __future__ import annotations

import subprocess
import sys

import pytest

HOOKED = """
import builtins, faulthandler
import numpy as np
import dlbridge

faulthandler.dump_traceback_later(20, exit=True)
imports, inner = builtins.__import__, []

def hooked(name, *rest, **named):
    if name in ("numpy._core._multiarray_umath", "dlbridge._channel") and len(inner) < 3:
        inner.append(name)
        call()
    return imports(name, *rest, **named)

builtins.__import__ = hooked
"""


@pytest.mark.parametrize(
    "call",
    [
        "dlbridge.from_dlpack(np.ones(3)).tolist() == [1, 1, 1]",
        "dlbridge.zeros((3,)).numpy().tolist() == [0, 0, 0]",
        "dlbridge.channel()[0].kept == (0, 0)",
    ],
)
def test_an_import_hook_calls_the_function_that_imports(call):
    """It waited for itself."""
    program = f"{HOOKED}\ndef call(): assert {call}\ncall()\nassert inner, 'nothing was imported'"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
