"""What a consumer may ask for: a copy, a device, an ordering of work."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from dlpack_doctor import abi, elements
from dlpack_doctor.export import Export, attempt, best
from dlpack_doctor.producer.layouts import FRESH, arrays
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Array, Subject
from dlpack_doctor.verdict import (
    Malformed,
    NotApplicable,
    Outcome,
    combine,
    describe,
    failed,
    passed,
    warned,
)

COPY = "array API 2023.12, __dlpack__, copy: "
DEVICE = "array API 2023.12, __dlpack__, dl_device: "


def _asked(array: Array, **keywords: Any) -> Export | Exception:
    """The answer to keywords that the producer must know, in the newest ABI that it has."""
    answers = attempt(array, max_version=(1, 3)), attempt(array)
    if all(isinstance(answer, Exception) for answer in answers):
        raise NotApplicable("it is exported once only")
    for name in keywords:
        if isinstance(attempt(array, **{name: None}), TypeError):
            raise NotApplicable(f"{name} is not known")
    if not isinstance(attempt(array, max_version=(1, 3)), TypeError):
        keywords["max_version"] = (1, 3)
    return attempt(array, **keywords)


def _plain(array: Array) -> Export:
    """The array's own export, for comparison."""
    plain = best(array)
    if not plain.tensor.data:
        raise NotApplicable("data is NULL")
    return plain


@check("producer.copy-true", COPY + "if True, always copy")
def copy_true(subject: Subject) -> Outcome:
    """copy=True exports other memory with the same numbers."""
    return combine(*(_copied(subject, name, array) for name, array in arrays(subject)))


def _copied(subject: Subject, name: str, array: Array) -> Outcome:
    try:
        plain, answer = _plain(array), _asked(array, copy=True)
    except NotApplicable as reason:
        if name == FRESH:
            raise
        return passed(f"{name}: {reason}")
    if isinstance(answer, BufferError):
        return warned(f"{name}: refused: {describe(answer)}")
    if isinstance(answer, Exception):
        return failed(f"{name}: {describe(answer)}")
    if answer.pointer == plain.pointer:
        return failed(f"{name}: exports the same memory")
    both = attempt(array, max_version=(1, 3), copy=True, dl_device=plain.device)
    if isinstance(both, Export) and both.pointer == plain.pointer:
        return failed(f"{name}: exports the same memory if dl_device is passed as well")
    if (answer.shape, answer.dtype) != (plain.shape, plain.dtype):
        text = f"the copy of {plain.shape} has shape {answer.shape}, type {answer.dtype}"
        return failed(f"{name}: {text}")
    try:
        found, expected = answer.values(), plain.values()
    except Malformed as reason:
        return passed(f"{name}: {reason}")
    if found != expected and (name == FRESH or not _holds(subject, array, found)):
        return failed(f"{name}: the copy holds {found[:6]}, not {expected[:6]}")
    return passed()


def _holds(subject: Subject, array: Array, numbers: list[Any]) -> bool:
    """Whether an array has these numbers by its own means: its export is judged by other checks."""
    try:
        return subject.seen(array) == numbers
    except NotApplicable:
        return False


@check("producer.copied-flag", COPY + "when a copy happens, the flag must be set")
def copied_flag(subject: Subject) -> Outcome:
    """A copy is flagged IS_COPIED."""
    array = subject.array()
    plain = _plain(array)
    answer = _asked(array, copy=True)
    if isinstance(answer, Exception) or answer.pointer == plain.pointer:
        raise NotApplicable("exports no copy")
    if not answer.versioned:
        raise NotApplicable("exports the legacy ABI, which has no flags")
    return passed() if answer.flags & abi.IS_COPIED else failed("a copy without the flag")


@check("producer.copy-true-old", COPY + "if True, always copy")
def copy_true_old(subject: Subject) -> Outcome:
    """copy=True is honoured in the legacy ABI."""
    array = subject.array()
    if isinstance(attempt(array, copy=None), TypeError):
        raise NotApplicable("copy is not known")
    plain, answer = _plain(array), attempt(array, copy=True)
    if isinstance(answer, BufferError):
        return passed("refused with BufferError")
    if isinstance(answer, Exception):
        return failed(describe(answer))
    if answer.versioned:
        raise NotApplicable("exports a versioned capsule")
    return failed("exports the same memory") if answer.pointer == plain.pointer else passed()


@check("producer.copy-false", COPY + "if False, never copy, and BufferError if a copy is needed")
def copy_false(subject: Subject) -> Outcome:
    """copy=False exports the array's own memory."""
    return combine(*(_uncopied(name, array) for name, array in arrays(subject)))


def _uncopied(name: str, array: Array) -> Outcome:
    try:
        plain, answer = _plain(array), _asked(array, copy=False)
    except NotApplicable as reason:
        if name == FRESH:
            raise
        return passed(f"{name}: {reason}")
    if isinstance(answer, BufferError):
        text = f"{name}: refused: {describe(answer)}"
        return warned(text) if name == FRESH else passed(text)
    if isinstance(answer, Exception):
        return failed(f"{name}: {describe(answer)}")
    if answer.pointer != plain.pointer:
        return failed(f"{name}: exports other memory")
    if answer.flags & abi.IS_COPIED and not plain.flags & abi.IS_COPIED:
        return failed(f"{name}: its own memory is flagged IS_COPIED")
    return passed()


@check("producer.zero-copy", COPY + "if None, reuse the memory if possible")
def zero_copy(subject: Subject) -> Outcome:
    """Without a request, each export is the same memory."""
    array = subject.array()
    one, other = best(array), best(array)
    if one.pointer != other.pointer:
        return warned("two exports, two addresses")
    if subject.address is not None and subject.address(array) != one.pointer:
        return warned(f"{one.pointer:#x}, but the array says {subject.address(array):#x}")
    outcomes = [_written(subject, array)]
    # Few elements, which an array may keep in place.
    for shape in ((1,), ()):
        with contextlib.suppress(NotApplicable):
            array = subject.array(shape)
            if best(array).shape == shape:
                outcomes.append(_written(subject, array))
    return combine(*outcomes)


def _written(subject: Subject, array: Array) -> Outcome:
    """Whether the array sees what a consumer writes, where one may write."""
    export = best(array)
    if subject.says_frozen(array) or not export.versioned or not export.tensor.data:
        return passed()
    if export.flags & (abi.READ_ONLY | abi.IS_COPIED) or export.dtype not in elements.NAMES:
        return passed()
    try:
        number = subject.seen(array)[:1]
    except NotApplicable:
        return passed()
    if number != export.values()[:1]:
        return passed()
    size = export.dtype[1] // 8
    before = ctypes.string_at(export.pointer, size)
    ctypes.memmove(export.pointer, bytes(byte ^ 1 for byte in before), size)
    now = subject.seen(array)[:1]
    ctypes.memmove(export.pointer, before, size)
    if now == number:
        what = f"of shape {export.shape}"
        return failed(f"an array {what} does not see what a consumer writes: a copy, not flagged")
    return passed()


@check(
    "producer.own-device", DEVICE + "in the form of __dlpack_device__; host memory must be possible"
)
def own_device(subject: Subject) -> Outcome:
    """dl_device naming the array's own device is granted."""
    array = subject.array()
    device = best(array).device
    answer = _asked(array, dl_device=device)
    if isinstance(answer, Exception):
        return failed(f"{device}: {describe(answer)}")
    if answer.device != device:
        return failed(f"{answer.device}, not {device}")
    together = attempt(array, max_version=(1, 3), dl_device=device, copy=False)
    alone = attempt(array, max_version=(1, 3), copy=False)
    if isinstance(together, Exception) and isinstance(alone, Export):
        return failed(f"{device} with copy=False: {describe(together)}")
    return passed()


@check("producer.other-device", DEVICE + "BufferError if the producer cannot handle it")
def other_device(subject: Subject) -> Outcome:
    """dl_device naming a device that no framework has is a BufferError."""
    # The Verilog simulator: known to the standard, and to no framework.
    device = (9, 0)
    array = subject.array()
    answer = _asked(array, dl_device=device)
    if isinstance(answer, BufferError):
        return passed()
    if isinstance(answer, Exception):
        return failed(f"{device}: {describe(answer)}")
    return failed(f"{device}: granted, on {answer.device}")


@check("producer.stream-none", "array API, __dlpack__, stream: None is always accepted")
def stream_none(subject: Subject) -> Outcome:
    """stream=None is accepted."""
    array = subject.array()
    answer = _asked(array, stream=None)
    if isinstance(answer, BufferError | Export):
        return passed()
    return failed(describe(answer))


@check("producer.stream-number", "array API, __dlpack__, stream: on CPU only None is accepted")
def stream_number(subject: Subject) -> Outcome:
    """A stream for host memory, which has none, is refused."""
    array = subject.array()
    device = best(array).device
    if device[0] != abi.CPU:
        raise NotApplicable(f"device type {device[0]}")
    asked = [1, 1.5, "1"]
    accepted = [stream for stream in asked if isinstance(_asked(array, stream=stream), Export)]
    return warned(f"stream={accepted[0]!r} is accepted") if accepted else passed()
