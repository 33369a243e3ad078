"""Who owns a capsule's tensor, and when it is released: without waiting for the interpreter, and
in chains of any length."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import dlbridge
import hostile
from dlbridge import _native
from hostile import LEGACY, VERSIONED, Managed, name_of, new_capsule, producer_of
from support import arange

KINDS = pytest.mark.parametrize("legacy", [False, True], ids=["versioned", "legacy"])
VERSIONS = {VERSIONED: (1, 3), LEGACY: None}
NAMES = pytest.mark.parametrize("name", VERSIONS)


def export(tensor, name):
    capsule = tensor.__dlpack__(max_version=VERSIONS[name])
    assert name_of(capsule) == name
    return capsule


no_double_release = hostile.no_double_release


@NAMES
def test_a_capsule_is_consumed_once_and_renamed(name):
    tensor = arange(3)
    capsule = export(tensor, name)
    again = dlbridge.from_dlpack(capsule)
    assert again.data_ptr == tensor.data_ptr
    assert name_of(capsule) == b"used_" + name
    with pytest.raises(BufferError, match="consumed already"):
        dlbridge.from_dlpack(capsule)
    assert name_of(capsule) == b"used_" + name


@KINDS
def test_a_bare_capsule_of_a_producer_is_consumed_once_and_released_once(legacy):
    made = Managed(legacy=legacy)
    capsule = made.capsule()
    tensor = dlbridge.from_dlpack(capsule)
    assert (tensor.data_ptr, tensor.shape, tensor.dtype) == (made.base, (3,), "float32")
    assert name_of(capsule) == (b"used_dltensor" if legacy else b"used_dltensor_versioned")
    with pytest.raises(BufferError, match="consumed already"):
        dlbridge.from_dlpack(capsule)
    del capsule
    assert made.releases == 0
    del tensor
    assert made.releases == 1


@KINDS
def test_inspect_takes_a_bare_capsule_and_says_so(legacy):
    made = Managed(legacy=legacy, byte_offset=4)
    description = dlbridge.inspect(made.capsule())
    assert description.protocol == "capsule"
    assert description.version == (None if legacy else (1, 3))
    assert (description.byte_offset, description.data_ptr) == (4, made.base + 4)
    assert made.releases == 1


@NAMES
def test_an_unconsumed_capsule_releases_its_share_once(name):
    made = Managed()
    tensor = dlbridge.from_dlpack(made.capsule())
    capsules = [export(tensor, name) for _ in range(3)]
    del tensor
    assert made.releases == 0
    while capsules:
        assert made.releases == 0
        capsules.pop()
    assert made.releases == 1


@NAMES
def test_a_consumed_capsule_releases_nothing_when_it_goes(name):
    made = Managed()
    tensor = dlbridge.from_dlpack(made.capsule())
    capsule = export(tensor, name)
    again = dlbridge.from_dlpack(capsule)
    del tensor, capsule
    assert made.releases == 0
    del again
    assert made.releases == 1


@KINDS
def test_a_tensor_that_is_refused_stays_its_capsules_and_is_released_once(legacy):
    made = Managed(legacy=legacy, ndim=-1)
    capsule = made.capsule()
    name = name_of(capsule)
    for _ in range(3):
        with pytest.raises(BufferError, match="ndim"):
            dlbridge.from_dlpack(capsule)
        assert name_of(capsule) == name
        assert made.releases == 0
    del capsule
    assert made.releases == 1


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (None, "a capsule without a name"),
        (b"", 'a capsule named ""'),
        (b"DLTENSOR", 'a capsule named "DLTENSOR"'),
        (b"dltensor_versioned_2", 'a capsule named "dltensor_versioned_2"'),
        (b"dlpack_exchange_api", 'a capsule named "dlpack_exchange_api"'),
        (b"\xff\x80", "a capsule named"),
    ],
)
def test_a_capsule_of_another_name_is_refused_and_left_alone(name, found):
    made = Managed()
    capsule = made.capsule(name)
    with pytest.raises(TypeError) as refusal:
        dlbridge.from_dlpack(capsule)
    assert found in str(refusal.value)
    assert 'expected one named "dltensor_versioned" or "dltensor"' in str(refusal.value)
    assert name_of(capsule) == name
    del capsule, refusal
    assert made.releases == 0
    # Its destructor looks for the right name: the tensor is still there, and this releases it.
    made.capsule()
    assert made.releases == 1


@pytest.mark.parametrize("name", [b"used_dltensor", b"used_dltensor_versioned"])
def test_a_used_capsule_is_refused_without_a_look_inside(name):
    capsule = new_capsule(1, name)
    with pytest.raises(BufferError, match="consumed already"):
        dlbridge.from_dlpack(capsule)
    assert name_of(capsule) == name


@pytest.mark.parametrize("wrong", [None, 3, 1.5, "dltensor", [1], object(), len])
def test_an_object_without_dlpack_that_is_no_capsule_is_a_type_error(wrong):
    with pytest.raises(TypeError, match=r"expected an array .*, found "):
        dlbridge.from_dlpack(wrong)


def test_no_argument_at_all_is_a_type_error():
    with pytest.raises(TypeError):
        dlbridge.from_dlpack()


@NAMES
def test_a_capsule_that_is_freed_while_an_exception_is_raised_keeps_the_exception(name):
    def noise():
        try:
            raise ValueError("of the release")
        except ValueError:
            pass

    made = Managed(on_release=noise)
    tensors = [dlbridge.from_dlpack(made.capsule())]
    with pytest.raises(ZeroDivisionError, match="division"):
        # The list and the capsule wait on the interpreter's stack for an argument that fails.
        print(export(tensors[0], name), tensors.pop(), 1 / 0)
    assert made.releases == 1


@NAMES
def test_a_capsule_that_is_freed_by_a_failed_call_keeps_the_exception(name):
    made = Managed()
    tensors = [dlbridge.from_dlpack(made.capsule())]

    def fail():
        capsule = export(tensors.pop(), name)
        raise LookupError(f"with {capsule!r} in hand")

    with pytest.raises(LookupError, match="in hand"):
        fail()
    gc.collect()
    assert made.releases == 1


def test_the_first_of_two_consumers_of_one_capsule_gets_it():
    np = pytest.importorskip("numpy", reason="numpy is not installed")
    tensor = arange(4, dtype="int16")

    capsule = tensor.__dlpack__(max_version=(1, 3))
    producer = hostile.Producer(lambda **_keywords: capsule)
    array = np.from_dlpack(producer)
    with pytest.raises(BufferError, match="consumed already"):
        dlbridge.from_dlpack(producer)
    assert array.tolist() == [0, 1, 2, 3]


FIRST_IMPORT = """
import atexit
import numpy as np
import dlbridge

class Bare:
    def __dlpack__(self, **_):
        return capsule

    def __dlpack_device__(self):
        return 1, 0

def consume(*arguments):
    atexit.register = register
    np.from_dlpack(Bare())
    return register(*arguments)

register, atexit.register = atexit.register, consume
capsule = np.arange(3).__dlpack__(max_version=(1, 0))
try:
    dlbridge.from_dlpack(capsule)
except BufferError as error:
    print(error)
"""


def test_python_code_that_the_first_import_runs_may_consume_the_capsule():
    """The exit handler is registered then, by a function that can be replaced."""
    found = subprocess.run(
        [sys.executable, "-c", FIRST_IMPORT], capture_output=True, text=True, check=True
    )
    assert "found one that was consumed already" in found.stdout, found.stderr


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
    """A deleter written in Python crashed after interpreter shutdown."""
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
    "the array of a tensor": lambda x: dlbridge.from_dlpack(x).numpy(),
    "an array without elements": lambda x: dlbridge.from_dlpack(x).numpy()[:0],
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
