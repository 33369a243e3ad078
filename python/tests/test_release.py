"""Dropping a tensor never waits for the interpreter, and chains of any length are released."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import dlbridge
import hostile
from dlbridge import _native
from hostile import Managed, producer_of

no_double_release = hostile.no_double_release

OVER_A_BYTEARRAY = {
    "NumPy": "import numpy as np; make = lambda block: np.frombuffer(block, 'u1')",
    "a view of NumPy": "import numpy as np; make = lambda block: np.frombuffer(block, 'u1')[::2]",
    "a capsule of NumPy": (
        "import numpy as np\n"
        "make = lambda block: np.frombuffer(block, 'u1').__dlpack__(max_version=(1, 0))"
    ),
    "a legacy capsule of NumPy": (
        "import numpy as np; make = lambda block: np.frombuffer(block, 'u1').__dlpack__()"
    ),
    "PyTorch": "import torch; make = lambda block: torch.frombuffer(block, dtype=torch.uint8)",
    "a capsule of PyTorch": (
        "import torch\n"
        "make = lambda block: torch.utils.dlpack.to_dlpack("
        "torch.frombuffer(block, dtype=torch.uint8))"
    ),
    "a memoryview": "make = memoryview",
    "a bytearray": "make = lambda block: block",
    "a tensor of this library": "make = dlbridge.from_dlpack",
    "a NumPy array over a tensor": (
        "import numpy as np; make = lambda block: np.from_dlpack(dlbridge.from_dlpack(block))"
    ),
}
"""How to make an array over a bytearray, which cannot be resized while there is one."""

PRELUDE = """
import faulthandler, sys, threading, time
import dlbridge
from dlbridge import _native

faulthandler.dump_traceback_later(240, exit=True)
block = bytearray(1000)

def resizes():
    # Pending calls are made between instructions of Python, soon.
    for _ in range(1000):
        try:
            block.append(1)
            return True
        except BufferError:
            time.sleep(0.001)
    return False
"""

WAYS = """
# On threads that the caller waits for without detaching.
assert _native._drop_on_threads([make(block) for _ in range(8)]) > 0
assert resizes()

# At the end of a thread, when Python has forgotten it.
thread = threading.Thread(target=lambda: _native._keep(make(block)))
thread.start()
thread.join()
assert resizes()

# By the next import, on a thread that makes no pending calls.
released = []
def work():
    _native._drop_on_threads([make(block)])
    dlbridge.from_dlpack(bytearray(1))
    try:
        block.append(1)
        released.append(True)
    except BufferError:
        pass
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert released or resizes()
"""


def run(script: str) -> None:
    """Run a script in a process of its own, which must end well, soon and silently."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def need(setup: str) -> None:
    if "torch" in setup:
        pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("producer", OVER_A_BYTEARRAY)
def test_a_tensor_is_dropped_without_the_interpreter(producer):
    setup = OVER_A_BYTEARRAY[producer]
    need(setup)
    run(f"{PRELUDE}\n{setup}\n{WAYS}")


def test_a_jax_array_is_dropped_without_the_interpreter():
    pytest.importorskip("jax", reason="jax is not installed")
    setup = "import jax.numpy as jnp; make = lambda block: jnp.arange(1000)"
    run(f"{PRELUDE}\n{setup}\n{WAYS}")


def test_a_deleter_of_python_code_runs_on_an_attached_thread():
    made = [Managed() for _ in range(50)]
    assert _native._drop_on_threads([producer_of(one) for one in made]) == 150
    dlbridge.from_dlpack(np.arange(3))
    assert [one.releases for one in made] == [1] * 50


AT_EXIT = {
    "a tensor in a thread's memory": "_native._keep(make(block))",
    "a tensor in the module": "kept = dlbridge.from_dlpack(make(block))",
    "a consumer in the module": "kept = np.from_dlpack(dlbridge.from_dlpack(make(block)))",
    "a tensor that waits": "_native._drop_on_threads([make(block)])",
    "a tensor in a thread that does not end": """
        def work():
            kept = dlbridge.from_dlpack(make(block))
            _native._keep(kept)
            started.set()
            threading.Event().wait()
        started = threading.Event()
        threading.Thread(target=work, daemon=True).start()
        started.wait()
    """,
}

# The callback belongs to this module, which is taken apart before tensors are.
CALLBACK = """
sys.path.insert(0, {path!r})
from hostile import Managed, producer_of
from dlpack_doctor.abi import Deleter
import ctypes

def delete(address):
    own(address)
delete = Deleter(delete)

def make(block):
    made = Managed()
    global own
    own = Deleter(made.raw.deleter)
    made.raw.deleter = ctypes.cast(delete, ctypes.c_void_p).value
    return producer_of(made)
"""


@pytest.mark.parametrize("where", AT_EXIT)
@pytest.mark.parametrize("producer", ["NumPy", "PyTorch", "a memoryview", "a callback"])
def test_a_tensor_at_the_interpreters_exit_does_no_harm(producer, where):
    setup = OVER_A_BYTEARRAY.get(producer) or CALLBACK.format(
        path=hostile.__file__.rpartition("/")[0]
    )
    need(setup)
    run(f"{PRELUDE}\nimport numpy as np\n{setup}\n{textwrap.dedent(AT_EXIT[where])}")


def grow(once, times):
    """How many bytes the process grew by, after a first round has filled every cache."""
    value = once(np.arange(10.0))
    for _ in range(times // 20):
        value = once(value)
    before = hostile.resident_bytes()
    for _ in range(times):
        value = once(value)
    return hostile.resident_bytes() - before


def to_numpy(x):
    return np.from_dlpack(dlbridge.from_dlpack(x))


BACK_AND_FORTH = {
    "a tensor": dlbridge.from_dlpack,
    "NumPy": to_numpy,
    "a view of NumPy": lambda x: to_numpy(x)[:],
}


@pytest.mark.parametrize("what", BACK_AND_FORTH)
def test_a_hundred_thousand_round_trips_take_constant_memory(what):
    assert grow(BACK_AND_FORTH[what], 100_000) < 1 << 20


CHAINS = {
    "PyTorch": "import torch; once = lambda x: torch.from_dlpack(dlbridge.from_dlpack(x))",
    "a memoryview": "once = lambda x: dlbridge.from_dlpack(memoryview(x))",
    "capsules": (
        "once = lambda x: dlbridge.from_dlpack("
        "dlbridge.from_dlpack(x).__dlpack__(max_version=(1, 0)))"
    ),
    "legacy capsules": (
        "once = lambda x: dlbridge.from_dlpack(dlbridge.from_dlpack(x).__dlpack__())"
    ),
    "subclasses of NumPy": """
import numpy as np
class Array(np.ndarray): pass
once = lambda x: np.from_dlpack(dlbridge.from_dlpack(x)).view(Array)
""",
    "both": """
import numpy as np
once = lambda x: np.asarray(memoryview(np.from_dlpack(dlbridge.from_dlpack(memoryview(x)))))
""",
}


LOOP = """
for _ in range(100_000):
    x = once(x)
del x
assert resizes()
"""


@pytest.mark.parametrize("chain", CHAINS)
def test_a_long_chain_is_released_with_a_stack_of_constant_size(chain):
    setup = CHAINS[chain]
    need(setup)
    first = "torch.frombuffer(block, dtype=torch.uint8)" if "torch" in setup else "block"
    run(f"{PRELUDE}\n{setup}\nx = {first}\n{LOOP}")
