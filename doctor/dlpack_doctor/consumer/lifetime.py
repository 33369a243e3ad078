"""When a consumer gives memory back, and what it does with the capsule."""

from __future__ import annotations

import gc

from dlbridge.doctor import abi
from dlbridge.doctor.consumer.offer import Offer, taken
from dlbridge.doctor.registry import check
from dlbridge.doctor.source import Producer
from dlbridge.doctor.subject import Subject
from dlbridge.doctor.verdict import NotApplicable, Outcome, failed, passed

SPECIFICATION = "DLPack, Python specification: "


def _rounds(subject: Subject) -> list[int]:
    """How often each of some tensors was released after its array had gone."""
    return [taken(subject).releases() for _ in range(3)]


@check(
    "consumer.releases",
    "the deleter is called when the array goes",
    clause=SPECIFICATION + "the consumer calls the deleter when it no longer needs the data",
)
def releases(subject: Subject) -> Outcome:
    counts = _rounds(subject)
    leaked = sum(count == 0 for count in counts)
    return failed(f"{leaked} of {len(counts)} tensors are never released") if leaked else passed()


@check(
    "consumer.releases-once",
    "the deleter is called once",
    clause="DLPack 1.3, deleter: destroys the managed tensor itself",
)
def releases_once(subject: Subject) -> Outcome:
    most = max(_rounds(subject))
    return failed(f"a tensor is released {most} times") if most > 1 else passed()


@check(
    "consumer.null-context",
    "a tensor whose manager_ctx is NULL is released, too",
    clause="DLPack 1.3, manager_ctx: may be NULL",
)
def null_context(subject: Subject) -> Outcome:
    if taken(subject).releases() == 0:
        raise NotApplicable("releases no tensor at all")
    count = taken(subject, context=False).releases()
    return passed() if count else failed("never released")


@check(
    "consumer.keeps",
    "memory is not given back while the array uses it",
    clause="DLPack 1.3, DLManagedTensor: lent until the deleter is called",
)
def keeps(subject: Subject) -> Outcome:
    offer = taken(subject, poison=True)
    expected = offer.tensor.values
    offer.producer.capsules.clear()
    gc.collect()
    found = subject.values(offer.array)
    if found != expected:
        return failed(f"holds {found[:6]} once its producer is gone, not {expected[:6]}")
    if offer.tensor.releases and subject.pointer(offer.array) == offer.tensor.pointer:
        return failed("released while the array uses the memory")
    return passed("copied, and released at once" if offer.tensor.releases else "")


@check(
    "consumer.renames",
    "a consumed capsule is renamed",
    clause=SPECIFICATION + "the consumer renames it to used_dltensor...",
)
def renames(subject: Subject) -> Outcome:
    offer = taken(subject)
    if not offer.producer.capsules:
        raise NotApplicable("takes no capsule")
    name = abi.name_of(offer.producer.capsules[-1])
    if name == abi.USED[offer.tensor.name]:
        return passed(name.decode())
    return failed(f"it is still named {name!r}")


@check(
    "consumer.used-capsule",
    "a capsule that was consumed already is refused",
    clause=SPECIFICATION + "a capsule is consumed exactly once",
)
def used_capsule(subject: Subject) -> Outcome:
    # Asked for whichever ABI is taken, and used up by hand.
    name = taken(subject).tensor.name
    offer = Offer(subject, name=abi.USED[name], legacy=name == abi.LEGACY)
    return passed(offer.refusal) if offer.refused else failed("it is taken a second time")


@check(
    "consumer.null-deleter",
    "a tensor without a deleter is taken and let go",
    clause="DLPack 1.3, deleter: may be NULL",
)
def null_deleter(subject: Subject) -> Outcome:
    offer = Offer(subject, deleter=False)
    if offer.refused:
        return passed(offer.refusal)
    found, expected = subject.values(offer.array), offer.tensor.values
    offer.array = None
    gc.collect()
    return passed() if found == expected else failed(f"holds {found}, not {expected}")


@check(
    "consumer.twice",
    "a producer may be taken twice",
    clause=SPECIFICATION + "both arrays may continue to be used",
)
def twice(subject: Subject) -> Outcome:
    offer = taken(subject)
    producer: Producer = offer.producer
    again = subject.taken(producer)
    expected = offer.tensor.values
    offer.array = None
    gc.collect()
    found = subject.values(again)
    return passed() if found == expected else failed(f"the second holds {found[:6]}")
