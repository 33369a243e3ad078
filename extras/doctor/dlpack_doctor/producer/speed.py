"""The time of an export, by each way that there is. Nothing here can fail."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable

from dlpack_doctor import abi
from dlpack_doctor.clock import COPY, copy_of_a_mebibyte, nanoseconds, show
from dlpack_doctor.export import Export, attempt
from dlpack_doctor.producer.exchange import _FromPy, _function
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Array, Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, describe, passed

OLD, NEW, TABLE = "dltensor", "dltensor_versioned", "exchange table"


@check("producer.speed", "not in the standard")
def speed(subject: Subject) -> Outcome:
    """The time of an export and its release, by each way that there is."""
    array = subject.array()
    ways: dict[str, Callable[[], object]] = {}
    answer = attempt(array)
    if isinstance(answer, Export) and not answer.versioned:
        ways[OLD] = lambda: array.__dlpack__()
    answer = attempt(array, max_version=(1, 3))
    if isinstance(answer, Export) and answer.versioned:
        ways[NEW] = lambda: array.__dlpack__(max_version=(1, 3))
    with contextlib.suppress(NotApplicable):
        ways[TABLE] = _through_table(array)
    if not ways:
        raise NotApplicable("nothing is exported")
    try:
        times = {name: nanoseconds(way) for name, way in ways.items()}
    except Exception as error:
        raise NotApplicable(f"cannot be exported many times ({describe(error)})") from None
    times[COPY] = copy_of_a_mebibyte()
    return passed(", ".join(f"{name} {show(time)}" for name, time in times.items()), times)


def _through_table(array: Array) -> Callable[[], object]:
    export = _FromPy(_function(array, "managed_tensor_from_py_object_no_sync"))
    out = ctypes.c_void_p()
    reference = ctypes.byref(out)
    export(array, reference)
    assert out.value is not None
    raw = abi.DLManagedTensorVersioned.from_address(out.value)
    # With the GIL held: acquiring it would be timed too.
    release = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(raw.deleter)
    release(out.value)

    def once() -> None:
        export(array, reference)
        release(out)

    return once
