"""Who owns a capsule's tensor, and when it is released."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

import dlbridge
import hostile
from hostile import LEGACY, VERSIONED, Managed, name_of, new_capsule
from values import arange

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
