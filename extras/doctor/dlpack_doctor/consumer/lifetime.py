"""When a consumer calls the deleter, and how it marks the capsule as consumed."""

from __future__ import annotations

import gc
from typing import Any

from dlpack_doctor import abi, source
from dlpack_doctor.consumer.offer import Offer, ReturnedNone, taken
from dlpack_doctor.registry import check
from dlpack_doctor.source import Producer
from dlpack_doctor.subject import Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, failed, passed

SPECIFICATION = "DLPack, Python specification: "


FORMS: dict[str, dict[str, Any]] = {
    "as asked": {},
    "legacy": {"legacy": True},
    "versioned": {"legacy": False},
    "of size zero": {"null_data": True},
}
"""Tensors that a consumer may handle on paths of their own."""


def _rounds(subject: Subject) -> dict[str, int]:
    """How often each form of tensor was released after its array was dropped."""
    counts = {}
    for form, fields in FORMS.items():
        if "null_data" in fields:
            fields = {**fields, "shape": (0,) * len(subject.shape) or (0,)}
        offer = Offer(subject, **fields)
        if not offer.refused and offer.made:
            counts[form] = offer.releases() - len(offer.made) + 1
    if not counts:
        raise NotApplicable("imports no tensor")
    return counts


@check(
    "consumer.releases",
    SPECIFICATION + "the consumer calls the deleter when it no longer needs the data",
)
def releases(subject: Subject) -> Outcome:
    """The deleter is called when the array is dropped."""
    source.strays.clear()
    leaked = [form for form, count in _rounds(subject).items() if count < 1]
    if source.strays:
        raise NotApplicable("the deleter is called with another address")
    return failed(f"never released: {', '.join(leaked)}") if leaked else passed()


@check(
    "consumer.deleter-argument",
    "DLPack 1.3, deleter: void (*deleter)(struct DLManagedTensor* self)",
)
def deleter_argument(subject: Subject) -> Outcome:
    """The deleter is called with the managed tensor that it belongs to."""
    source.strays.clear()
    _rounds(subject)
    count = len(source.strays)
    return failed(f"{count} calls with another address") if count else passed()


@check("consumer.releases-once", "DLPack 1.3, deleter: destroys the managed tensor itself")
def releases_once(subject: Subject) -> Outcome:
    """The deleter is called once."""
    twice = {form: count for form, count in _rounds(subject).items() if count > 1}
    text = ", ".join(f"{form}: {count} times" for form, count in twice.items())
    return failed(text) if twice else passed()


@check("consumer.null-context", "DLPack 1.3, manager_ctx: may be NULL")
def null_context(subject: Subject) -> Outcome:
    """A tensor whose manager_ctx is NULL is released like any other."""
    if taken(subject).releases() == 0:
        raise NotApplicable("releases no tensor at all")
    count = taken(subject, context=False).releases()
    return passed() if count else failed("never released")


@check("consumer.keeps", "DLPack 1.3, DLManagedTensor: borrowed until the deleter is called")
def keeps(subject: Subject) -> Outcome:
    """Memory is not released while the array uses it."""
    offer = taken(subject, poison=True)
    expected = offer.tensor.values
    offer.producer.capsules.clear()
    gc.collect()
    found = subject.values(offer.array)
    if found != expected:
        return failed(f"holds {found[:6]} once its producer is dropped, not {expected[:6]}")
    if offer.tensor.releases and subject.pointer(offer.array) == offer.tensor.pointer:
        return failed("released while the array uses the memory")
    return passed("copied, and released at once" if offer.tensor.releases else "")


@check("consumer.renames", SPECIFICATION + "the consumer renames it to used_dltensor...")
def renames(subject: Subject) -> Outcome:
    """A consumed capsule is renamed."""
    taken(subject)
    seen = []
    for legacy in (True, False):
        offer = Offer(subject, legacy=legacy)
        if offer.refused or not offer.producer.capsules:
            continue
        name = abi.name_of(offer.producer.capsules[-1])
        if name != abi.USED[offer.tensor.name]:
            return failed(f"it is still named {name!r}")
        seen.append(name.decode())
    return passed(", ".join(seen))


@check("consumer.used-capsule", SPECIFICATION + "a capsule is consumed exactly once")
def used_capsule(subject: Subject) -> Outcome:
    """A capsule that was consumed already is refused."""
    # A capsule of the ABI that is imported, renamed as a consumer does.
    name = taken(subject).tensor.name
    offer = Offer(subject, name=abi.USED[name], legacy=name == abi.LEGACY)
    if isinstance(offer.error, ReturnedNone):
        return failed("no exception")
    return passed(offer.refusal) if offer.refused else failed("it is imported a second time")


@check("consumer.null-deleter", "DLPack 1.3, deleter: may be NULL")
def null_deleter(subject: Subject) -> Outcome:
    """A tensor without a deleter is imported and dropped."""
    offer = Offer(subject, deleter=False)
    if offer.refused:
        return passed(offer.refusal)
    found, expected = subject.values(offer.array), offer.tensor.values
    offer.array = None
    gc.collect()
    return passed() if found == expected else failed(f"holds {found}, not {expected}")


@check("consumer.twice", SPECIFICATION + "both arrays may continue to be used")
def twice(subject: Subject) -> Outcome:
    """A producer may be imported twice."""
    offer = taken(subject)
    producer: Producer = offer.producer
    again = subject.taken(producer)
    expected = offer.tensor.values
    offer.array = None
    gc.collect()
    found = subject.values(again)
    return passed() if found == expected else failed(f"the second holds {found[:6]}")
