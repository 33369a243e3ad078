"""Tensors and producers that must be refused, or that fail in the middle."""

from __future__ import annotations

from typing import Any

from dlpack_doctor import abi
from dlpack_doctor.consumer.elements import UNKNOWN
from dlpack_doctor.consumer.layouts import LAYOUTS
from dlpack_doctor.consumer.offer import Offer, asks, refuses, taken
from dlpack_doctor.export import best
from dlpack_doctor.registry import check
from dlpack_doctor.source import Producer
from dlpack_doctor.subject import Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, describe, failed, passed, warned

SIMULATOR = (9, 0)
"""A device type of the standard that no framework has."""
FAR_GPU = (abi.CUDA, 99)
"""A GPU that no machine has."""


@check(
    "consumer.other-major",
    "a header of another major version is refused",
    clause="DLPack 1.3, DLPackVersion: no other field may be read then",
)
def other_major(subject: Subject) -> Outcome:
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
    "consumer.unknown-device",
    "a tensor on a device that no framework has is refused, or carried as it is",
    clause="DLPack, Python specification: BufferError for an unsupported device",
)
def unknown_device(subject: Subject) -> Outcome:
    return _device(subject, SIMULATOR)


@check(
    "consumer.absent-gpu",
    "a tensor on a GPU that is not there is refused, or carried as it is",
    clause="DLPack, Python specification: BufferError for an unsupported device",
)
def absent_gpu(subject: Subject) -> Outcome:
    return _device(subject, FAR_GPU)


REFUSED: dict[str, dict[str, Any]] = {
    "an unknown element type": {"dtype": UNKNOWN},
    "an unknown device": {"device": SIMULATOR},
    "another major version": {"legacy": False, "version": (2, 0)},
    "a negative stride": LAYOUTS["negative"][0],
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
    "consumer.refused-released",
    "a refused tensor is released exactly once",
    clause="DLPack, Python specification: the capsule's destructor, or else the consumer",
)
def refused_released(subject: Subject) -> Outcome:
    return _refused_once(subject, REFUSED)


@check(
    "consumer.refused-gpu-released",
    "a tensor refused for a GPU that is not there is released exactly once",
    clause="DLPack, Python specification: the capsule's destructor, or else the consumer",
)
def refused_gpu_released(subject: Subject) -> Outcome:
    return _refused_once(subject, {"an absent GPU": {"device": FAR_GPU}})


@check(
    "consumer.producer-error",
    "a BufferError of the producer reaches the caller",
    clause="array API, from_dlpack: must propagate such exceptions",
)
def producer_error(subject: Subject) -> Outcome:
    def refuse(_keywords: dict[str, Any]) -> Any:
        raise BufferError("the doctor's producer refuses")

    asks(subject)
    try:
        subject.taken(Producer(refuse))
    except BufferError:
        return passed()
    except NotApplicable:
        raise
    except Exception as error:
        return failed(f"{describe(error)} instead")
    return failed("no exception")


@check(
    "consumer.no-methods",
    "an object without the two methods is an AttributeError",
    clause="array API, from_dlpack: AttributeError if the methods are not present",
)
def no_methods(subject: Subject) -> Outcome:
    asks(subject)
    try:
        subject.taken(object())
    except AttributeError:
        return passed()
    except NotApplicable:
        raise
    except Exception as error:
        return warned(f"{describe(error)} instead")
    return failed("it is imported")


def _refuses_answer(subject: Subject, answer: object) -> Outcome:
    try:
        subject.taken(Producer(lambda _keywords: answer))
    except NotApplicable:
        raise
    except Exception as error:
        return passed(describe(error))
    return failed("it is imported")


@check(
    "consumer.wrong-name",
    "a capsule of another name is refused",
    clause="DLPack, Python specification: the name says which struct the capsule holds",
)
def wrong_name(subject: Subject) -> Outcome:
    offer = Offer(subject, name=b"something_else", legacy=False)
    return passed(offer.refusal) if offer.refused else failed("it is imported")


@check(
    "consumer.no-capsule",
    "an answer that is no capsule is refused",
    clause="array API, __dlpack__: returns a PyCapsule",
)
def no_capsule(subject: Subject) -> Outcome:
    return _refuses_answer(subject, 42)
