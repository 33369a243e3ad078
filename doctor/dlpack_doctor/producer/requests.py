"""What a consumer may ask for: a copy, a device, an ordering of work."""

from __future__ import annotations

from typing import Any

from dlpack_doctor import abi
from dlpack_doctor.export import Export, attempt, best
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Array, Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, describe, failed, passed, warned

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


@check(
    "producer.copy-true",
    "copy=True exports other memory with the same numbers",
    clause=COPY + "if True, always copy",
)
def copy_true(subject: Subject) -> Outcome:
    array = subject.array()
    plain = _plain(array)
    answer = _asked(array, copy=True)
    if isinstance(answer, BufferError):
        return warned(f"refused: {describe(answer)}")
    if isinstance(answer, Exception):
        return failed(describe(answer))
    if answer.pointer == plain.pointer:
        return failed("exports the same memory")
    if (answer.shape, answer.dtype) != (plain.shape, plain.dtype):
        return failed(f"the copy of {plain.shape} has shape {answer.shape}, type {answer.dtype}")
    if answer.values() != plain.values():
        return failed(f"the copy holds {answer.values()[:6]}, not {plain.values()[:6]}")
    return passed()


@check(
    "producer.copied-flag",
    "a copy is flagged IS_COPIED",
    clause=COPY + "when a copy happens, the flag must be set",
)
def copied_flag(subject: Subject) -> Outcome:
    array = subject.array()
    plain = _plain(array)
    answer = _asked(array, copy=True)
    if isinstance(answer, Exception) or answer.pointer == plain.pointer:
        raise NotApplicable("exports no copy")
    if not answer.versioned:
        raise NotApplicable("exports the legacy ABI, which has no flags")
    return passed() if answer.flags & abi.IS_COPIED else failed("a copy without the flag")


@check(
    "producer.copy-true-old",
    "copy=True is honoured in the legacy ABI",
    clause=COPY + "if True, always copy",
)
def copy_true_old(subject: Subject) -> Outcome:
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


@check(
    "producer.copy-false",
    "copy=False exports the array's own memory",
    clause=COPY + "if False, never copy, and BufferError if a copy is needed",
)
def copy_false(subject: Subject) -> Outcome:
    array = subject.array()
    plain, answer = _plain(array), _asked(array, copy=False)
    if isinstance(answer, BufferError):
        return warned(f"refused: {describe(answer)}")
    if isinstance(answer, Exception):
        return failed(describe(answer))
    if answer.pointer != plain.pointer:
        return failed("exports other memory")
    if answer.flags & abi.IS_COPIED and not plain.flags & abi.IS_COPIED:
        return failed("the array's own memory is flagged IS_COPIED")
    return passed()


@check(
    "producer.zero-copy",
    "without a request, each export is the same memory",
    clause=COPY + "if None, reuse the memory if possible",
)
def zero_copy(subject: Subject) -> Outcome:
    array = subject.array()
    one, other = best(array), best(array)
    if one.pointer != other.pointer:
        return warned("two exports, two addresses")
    if subject.address is not None and subject.address(array) != one.pointer:
        return warned(f"{one.pointer:#x}, but the array says {subject.address(array):#x}")
    return passed()


@check(
    "producer.own-device",
    "dl_device naming the array's own device is granted",
    clause=DEVICE + "in the form of __dlpack_device__; host memory must be possible",
)
def own_device(subject: Subject) -> Outcome:
    array = subject.array()
    device = best(array).device
    answer = _asked(array, dl_device=device)
    if isinstance(answer, Exception):
        return failed(f"{device}: {describe(answer)}")
    return passed() if answer.device == device else failed(f"{answer.device}, not {device}")


@check(
    "producer.other-device",
    "dl_device naming a device that no framework has is a BufferError",
    clause=DEVICE + "BufferError if the producer cannot handle it",
)
def other_device(subject: Subject) -> Outcome:
    # The Verilog simulator: known to the standard, and to no framework.
    device = (9, 0)
    array = subject.array()
    answer = _asked(array, dl_device=device)
    if isinstance(answer, BufferError):
        return passed()
    if isinstance(answer, Exception):
        return failed(f"{device}: {describe(answer)}")
    return failed(f"{device}: granted, on {answer.device}")


@check(
    "producer.stream-none",
    "stream=None is accepted",
    clause="array API, __dlpack__, stream: None is always accepted",
)
def stream_none(subject: Subject) -> Outcome:
    array = subject.array()
    answer = _asked(array, stream=None)
    if isinstance(answer, BufferError | Export):
        return passed()
    return failed(describe(answer))


@check(
    "producer.stream-number",
    "a stream for host memory, which has none, is refused",
    clause="array API, __dlpack__, stream: on CPU only None is accepted",
)
def stream_number(subject: Subject) -> Outcome:
    array = subject.array()
    device = best(array).device
    if device[0] != abi.CPU:
        raise NotApplicable(f"device type {device[0]}")
    answer = _asked(array, stream=1)
    if isinstance(answer, Export):
        return warned("stream=1 is accepted")
    return passed(type(answer).__name__)
