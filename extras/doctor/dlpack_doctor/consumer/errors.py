"""Tensors and producers that must be refused, or that fail in the middle."""

from __future__ import annotations

from typing import Any

from dlpack_doctor import abi, elements
from dlpack_doctor.consumer.elements import UNKNOWN
from dlpack_doctor.consumer.layouts import LAYOUTS
from dlpack_doctor.consumer.offer import Offer, ReturnedNone, asks, attempt, refuses, taken
from dlpack_doctor.export import best
from dlpack_doctor.registry import check
from dlpack_doctor.source import Producer
from dlpack_doctor.subject import Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, describe, failed, passed, warned

SIMULATOR = (9, 0)
"""A device type of the standard that no framework has."""
FAR_GPU = (abi.CUDA, 99)
"""A GPU that no machine has."""


@check("consumer.other-major", "DLPack 1.3, DLPackVersion: no other field may be read then")
def other_major(subject: Subject) -> Outcome:
    """A header of another major version is refused."""
    taken(subject, legacy=False)
    return refuses(
        subject,
        lambda _offer: failed("a tensor of version 2.0 is read as if it were 1.x"),
        legacy=False,
        version=(2, 0),
    )


def _device(subject: Subject, device: tuple[int, int]) -> Outcome:
    def accepted(offer: Offer) -> Outcome:
        try:
            found = best(offer.array).device
        except NotApplicable:
            return warned("imported; its device cannot be read")
        if found == device:
            return passed("carried as it is")
        return failed(f"imported as memory of device {found}")

    return refuses(subject, accepted, device=device)


@check(
    "consumer.unknown-device", "DLPack, Python specification: BufferError for an unsupported device"
)
def unknown_device(subject: Subject) -> Outcome:
    """A tensor on a device that no framework has is refused, or carried as it is."""
    return _device(subject, SIMULATOR)


@check("consumer.absent-gpu", "DLPack, Python specification: BufferError for an unsupported device")
def absent_gpu(subject: Subject) -> Outcome:
    """A tensor on a GPU that is not there is refused, or carried as it is."""
    return _device(subject, FAR_GPU)


REFUSED: dict[str, dict[str, Any]] = {
    "an unknown element type": {"dtype": UNKNOWN},
    "two lanes": {"dtype": (2, 32, 2)},
    "an unknown device": {"device": SIMULATOR},
    "another major version": {"legacy": False, "version": (2, 0)},
    "a newer minor version": {"legacy": False, "version": (1, 99)},
    "a legacy capsule": {"legacy": True},
    "a versioned capsule": {"legacy": False},
    "read-only memory": {"legacy": False, "flags": abi.READ_ONLY},
    "no strides": {"strides": None},
    "a byte offset": {"byte_offset": 64, "offset": 16},
    "unaligned memory": {"skew": 4},
    **{name: {"dtype": name} for name in elements.DTYPES},
    **{f"{name} ({at})": one for name, each in LAYOUTS.items() for at, one in enumerate(each)},
}


def _refused_once(subject: Subject, cases: dict[str, dict[str, Any]]) -> Outcome:
    refused = []
    for what, fields in cases.items():
        offer = Offer(subject, **fields)
        if not offer.refused or not offer.made:
            continue
        made = len(offer.made)
        count = offer.releases()
        if count != made:
            return failed(f"{what}: expected {made} calls of deleters, found {count}")
        refused.append(what)
    if not refused:
        raise NotApplicable("refuses none of them after having got a capsule")
    return passed(", ".join(refused))


@check(
    "consumer.refusal",
    "array API, from_dlpack: BufferError or another exception when there is no array",
)
def refusal(subject: Subject) -> Outcome:
    """A tensor is refused by an exception, not by None."""
    offers = {what: Offer(subject, **fields) for what, fields in REFUSED.items()}
    silent = [what for what, offer in offers.items() if isinstance(offer.error, ReturnedNone)]
    return failed(f"None for {', '.join(silent)}") if silent else passed()


@check(
    "consumer.refused-released",
    "DLPack, Python specification: the capsule's destructor, or else the consumer",
)
def refused_released(subject: Subject) -> Outcome:
    """A refused tensor is released exactly once."""
    return _refused_once(subject, REFUSED)


@check(
    "consumer.refused-gpu-released",
    "DLPack, Python specification: the capsule's destructor, or else the consumer",
)
def refused_gpu_released(subject: Subject) -> Outcome:
    """A tensor refused for a GPU that is not there is released exactly once."""
    return _refused_once(subject, {"an absent GPU": {"device": FAR_GPU}})


@check("consumer.producer-error", "array API, from_dlpack: must propagate such exceptions")
def producer_error(subject: Subject) -> Outcome:
    """A BufferError of the producer reaches the caller."""

    def refuse(_keywords: dict[str, Any]) -> Any:
        raise BufferError("the doctor's producer refuses")

    asks(subject)
    for kind in (ValueError, RuntimeError, MemoryError, AttributeError, KeyboardInterrupt):
        if _is_swallowed(subject, kind):
            return failed(f"a producer raises {kind.__name__}: no exception")
    answer = attempt(subject, Producer(refuse))
    if isinstance(answer, ReturnedNone) or not isinstance(answer, Exception):
        return failed("no exception")
    return passed() if isinstance(answer, BufferError) else failed(f"{describe(answer)} instead")


def _is_swallowed(subject: Subject, kind: type[BaseException]) -> bool:
    """Whether no exception arrives where a producer raises one of this kind."""

    def refuse(_keywords: dict[str, Any]) -> Any:
        raise kind("the doctor's producer fails")

    try:
        answer = attempt(subject, Producer(refuse))
    except KeyboardInterrupt:
        return False
    return isinstance(answer, ReturnedNone) or not isinstance(answer, Exception)


@check(
    "consumer.no-methods", "array API, from_dlpack: AttributeError if the methods are not present"
)
def no_methods(subject: Subject) -> Outcome:
    """An object without the two methods is an AttributeError."""
    asks(subject)
    answer = attempt(subject, object())
    if isinstance(answer, ReturnedNone) or not isinstance(answer, Exception):
        return failed("no exception")
    return passed() if isinstance(answer, AttributeError) else warned(f"{describe(answer)} instead")


@check(
    "consumer.wrong-name",
    "DLPack, Python specification: the name says which struct the capsule holds",
)
def wrong_name(subject: Subject) -> Outcome:
    """A capsule of another name is refused."""
    offer = Offer(subject, name=b"something_else", legacy=False)
    if isinstance(offer.error, ReturnedNone):
        return failed("no exception")
    return passed(offer.refusal) if offer.refused else failed("it is imported")


@check("consumer.no-capsule", "array API, __dlpack__: returns a PyCapsule")
def no_capsule(subject: Subject) -> Outcome:
    """An answer that is no capsule is refused."""
    answer = attempt(subject, Producer(lambda _keywords: 42))
    if isinstance(answer, ReturnedNone):
        return failed("no exception")
    return passed(describe(answer)) if isinstance(answer, Exception) else failed("it is imported")
