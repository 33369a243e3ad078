"""What a consumer may ask for: a copy, a device, an ordering of work."""

from __future__ import annotations

from typing import Any

from dlpack_doctor import abi
from dlpack_doctor.export import Export, attempt, best
from dlpack_doctor.producer.layouts import FRESH, arrays
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Array, Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, combine, describe, failed, passed, warned

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
    array = subject.array()
    plain = _plain(array)
    answer = _asked(array, copy=True)
    if isinstance(answer, BufferError):
        return warned(f"refused: {describe(answer)}")
    if isinstance(answer, Exception):
        return failed(describe(answer))
    if answer.pointer == plain.pointer:
        return failed("exports the same memory")
    both = attempt(array, max_version=(1, 3), copy=True, dl_device=plain.device)
    if isinstance(both, Export) and both.pointer == plain.pointer:
        return failed("exports the same memory if dl_device is passed as well")
    if (answer.shape, answer.dtype) != (plain.shape, plain.dtype):
        return failed(f"the copy of {plain.shape} has shape {answer.shape}, type {answer.dtype}")
    if answer.values() != plain.values():
        return failed(f"the copy holds {answer.values()[:6]}, not {plain.values()[:6]}")
    return passed()


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
