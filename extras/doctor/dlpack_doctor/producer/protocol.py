"""The factory, the two methods, their keywords, and the device that they name."""

from __future__ import annotations

from dlpack_doctor import abi
from dlpack_doctor.export import attempt, best
from dlpack_doctor.registry import check
from dlpack_doctor.subject import FactoryFailed, Subject, shape_of
from dlpack_doctor.verdict import NotApplicable, Outcome, describe, failed, passed, warned

KEYWORDS = ("stream", "max_version", "dl_device", "copy")


@check(
    "producer.factory", "not in the standard: factory(), factory(shape) or factory(shape, dtype)"
)
def factory(subject: Subject) -> Outcome:
    """The factory makes an array of the requested shape."""
    try:
        array = subject.array()
    except FactoryFailed as error:
        return failed(str(error))
    made = shape_of(array)
    if subject.any_shape and made not in (None, subject.shape):
        return failed(f"asked for shape {subject.shape}, the factory made {made}")
    return passed()


@check("producer.methods", "array API, data interchange: arrays have both methods")
def methods(subject: Subject) -> Outcome:
    """An array has __dlpack__ and __dlpack_device__."""
    array = subject.array()
    missing = [
        name
        for name in ("__dlpack__", "__dlpack_device__")
        if not callable(getattr(array, name, None))
    ]
    return failed(f"no {' and no '.join(missing)}") if missing else passed()


@check("producer.keywords", "array API 2023.12, __dlpack__: the four keywords, None by default")
def keywords(subject: Subject) -> Outcome:
    """__dlpack__ knows stream, max_version, dl_device and copy, all with default None."""
    array = subject.array()
    refused = {
        name: answer
        for name in KEYWORDS
        if isinstance(answer := attempt(array, **{name: None}), TypeError)
    }
    if not refused:
        return passed("all four")
    text = f"unknown: {', '.join(refused)} ({describe(next(iter(refused.values())))})"
    # Without `stream` it follows no edition of the standard; the rest came in 2023.12.
    return failed(text) if "stream" in refused else warned(text)


@check("producer.keyword-only", "array API, __dlpack__(self, /, *, ...)")
def keyword_only(subject: Subject) -> Outcome:
    """__dlpack__ takes its arguments by keyword only."""
    array = subject.array()
    if not callable(getattr(array, "__dlpack__", None)):
        raise NotApplicable("there is no such method")
    try:
        array.__dlpack__(None)
    except TypeError:
        return passed()
    except Exception as error:
        return passed(f"refused by {describe(error)}")
    return warned("__dlpack__(None) is accepted")


@check("producer.device", "array API, __dlpack_device__: a tuple (device_type, device_id)")
def device(subject: Subject) -> Outcome:
    """__dlpack_device__ returns a device type and an id, both integers."""
    array = subject.array()
    if not callable(getattr(array, "__dlpack_device__", None)):
        raise NotApplicable("there is no such method")
    answer = array.__dlpack_device__()
    if not isinstance(answer, tuple) or len(answer) != 2:
        return failed(f"returns {answer!r}")
    if not all(isinstance(number, int) for number in answer):
        return failed(f"returns {answer!r}: the id is {type(answer[1]).__name__}")
    return passed(f"({int(answer[0])}, {answer[1]})")


@check(
    "producer.device-agrees", "array API, __dlpack_device__: the array's device, in DLPack's terms"
)
def device_agrees(subject: Subject) -> Outcome:
    """__dlpack_device__ and the descriptor name the same device."""
    array = subject.array()
    try:
        kind, number = array.__dlpack_device__()
        said = (int(kind), number)
    except Exception as error:
        raise NotApplicable(f"no device to compare ({describe(error)})") from None
    found = best(array).device
    if said[0] != found[0] or (said[1] is not None and said[1] != found[1]):
        return failed(f"the method says {said}, the descriptor {found}")
    return passed(f"{found}")


@check("producer.host-id", "DLPack 1.3, DLDevice.device_id: 0 for CPU, pinned and managed memory")
def host_id(subject: Subject) -> Outcome:
    """Host memory has device id 0."""
    array = subject.array()
    kind, number = best(array).device
    if kind not in abi.HOST_DEVICES:
        raise NotApplicable(f"device type {kind}")
    return passed() if number == 0 else failed(f"the descriptor says id {number}")
