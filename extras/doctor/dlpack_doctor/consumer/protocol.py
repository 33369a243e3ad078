"""How a consumer calls `__dlpack__`, and which answers it accepts."""

from __future__ import annotations

import gc
from typing import Any

from dlpack_doctor import abi, reproduce
from dlpack_doctor.consumer.offer import Offer, asks, attempt, judge, taken, wants_versioned
from dlpack_doctor.export import best
from dlpack_doctor.registry import check
from dlpack_doctor.source import Managed, Producer
from dlpack_doctor.subject import Array, Subject
from dlpack_doctor.verdict import (
    NotApplicable,
    Outcome,
    Verdict,
    combine,
    describe,
    failed,
    passed,
    warned,
)

KNOWN = {"stream", "max_version", "dl_device", "copy"}
RECOMMENDED = "array API 2023.12, __dlpack__, notes for consumers: "


@check("consumer.takes", "array API, from_dlpack: an array with the data of x")
def takes(subject: Subject) -> Outcome:
    """A tensor of a producer without a fault is imported, with its numbers."""
    outcome = judge(subject)
    if outcome.evidence.startswith("refused"):
        return failed(outcome.evidence)
    if outcome.verdict is Verdict.PASS and subject.capsules_only:
        reproduce.note(take=subject.take_code)
        return warned("imports capsules, not the objects with __dlpack__ that make them")
    return outcome


def _calls(subject: Subject) -> list[dict[str, Any]]:
    """The keywords of each call of `__dlpack__` by one import."""
    asks(subject)
    calls = Offer(subject).producer.calls
    if not calls:
        raise NotApplicable("__dlpack__ was not called")
    return calls


@check("consumer.keywords", "array API 2023.12, __dlpack__")
def keywords(subject: Subject) -> Outcome:
    """__dlpack__ is called with keywords that the standard has, and proper values."""
    calls = _calls(subject)
    device = getattr(Offer(subject).array, "device", (abi.CPU, 0))
    asked: list[dict[str, Any]] = [{"copy": True}, {"copy": False}, {"device": device}]
    offers = [Offer(subject, keywords=keywords) for keywords in (*asked, asked[1] | asked[2])]
    used: dict[str, Any] = {}
    for call in calls:
        used |= call
    unknown = {name for offer in offers for call in offer.producer.calls for name in call}
    unknown = (unknown | used.keys()) - KNOWN
    if unknown:
        return failed(f"passes {', '.join(sorted(unknown))}")
    version = used.get("max_version")
    if version is not None and not (isinstance(version, tuple) and len(version) == 2):
        return failed(f"max_version={version!r}")
    text = ", ".join(f"{name}={value!r}" for name, value in used.items())
    # -1 means that the producer need not order anything.
    if used.get("stream") not in (None, -1):
        return failed(f"{text}: a stream for host memory")
    if used.get("copy"):
        return failed(f"{text}: a copy, which was not asked for")
    device = used.get("dl_device")
    if device is not None and tuple(device) != (abi.CPU, 0):
        return failed(f"{text}: another device, which was not asked for")
    return passed(text or "no keyword")


@check("consumer.asks-versioned", "DLPack 1.3, DLManagedTensor: deprecated since 1.0")
def asks_versioned(subject: Subject) -> Outcome:
    """The versioned ABI is requested."""
    calls = _calls(subject)
    if any(map(wants_versioned, calls)):
        return passed()
    return warned("max_version is not passed, so READ_ONLY and IS_COPIED never arrive")


@check("consumer.old-producer", RECOMMENDED + "on TypeError, call without the newer keywords")
def old_producer(subject: Subject) -> Outcome:
    """A producer that knows `stream` alone is asked again without the other keywords."""
    asks(subject)
    producer = _Old(subject)
    array = attempt(subject, producer)
    if isinstance(array, Exception):
        return warned(f"refused: {describe(array)}")
    expected = producer.tensor.values
    found = subject.values(array)
    return passed() if found == expected else failed(f"holds {found}, not {expected}")


@check(
    "consumer.old-answer", "array API 2023.12, max_version: the answer may have a different version"
)
def old_answer(subject: Subject) -> Outcome:
    """A legacy capsule is imported, whatever was requested."""
    return judge(subject, legacy=True)


@check(
    "consumer.new-answer", "array API 2023.12, max_version: the answer may have a different version"
)
def new_answer(subject: Subject) -> Outcome:
    """A versioned capsule is imported, even if it was not requested."""
    return judge(subject, legacy=False)


@check(
    "consumer.newer-minor",
    "DLPack 1.3, DLPackVersion: a minor version only adds enumeration values",
)
def newer_minor(subject: Subject) -> Outcome:
    """A header of a newer minor version is imported."""
    taken(subject, legacy=False)
    outcome = judge(subject, legacy=False, version=(1, 99))
    return failed(outcome.evidence) if outcome.evidence.startswith("refused") else outcome


@check(
    "consumer.read-only",
    "array API, __dlpack__, notes: libraries without read-only arrays ignore the flag",
)
def read_only(subject: Subject) -> Outcome:
    """A read-only tensor becomes an array that cannot be written."""
    offer = taken(subject, legacy=False, flags=abi.READ_ONLY)
    if subject.is_frozen(offer.array):
        both = Offer(subject, legacy=False, flags=abi.READ_ONLY | abi.IS_COPIED)
        if both.refused or subject.is_frozen(both.array):
            return passed()
        return failed("the flag is lost beside IS_COPIED")
    if subject.pointer(offer.array) != offer.tensor.pointer:
        return passed("copied, so it may be written")
    return warned("a writable array over read-only memory")


@check("consumer.zero-copy", "DLPack, Python specification: zero-copy if possible")
def zero_copy(subject: Subject) -> Outcome:
    """The array is over the producer's memory."""
    offer = taken(subject)
    found, expected = subject.pointer(offer.array), offer.tensor.pointer
    return passed() if found == expected else warned("the numbers are copied")


class _Old:
    """A producer that knows `stream` alone."""

    def __init__(self, subject: Subject) -> None:
        self.tensor = Managed(subject.shape, legacy=True)
        self.capsules: list[object] = []

    def __dlpack__(self, stream: object = None) -> object:
        self.capsules.append(self.tensor.capsule())
        return self.capsules[-1]

    def __dlpack_device__(self) -> tuple[int, int]:
        return (abi.CPU, 0)


def _asked(subject: Subject, producer: Producer, **keywords: Any) -> Array | Exception:
    """The array, or the exception; without the keyword there is nothing to check."""
    asks(subject)
    answer = attempt(subject, producer, **keywords)
    if isinstance(answer, TypeError) and not producer.calls:
        raise NotApplicable(f"has no such keyword ({describe(answer)})")
    return answer


COPY = "array API 2023.12, from_dlpack, copy: "


@check("consumer.copy-true", COPY + "if True, always copy")
def copy_true(subject: Subject) -> Outcome:
    """from_dlpack(x, copy=True) copies to memory of its own."""
    # One of each ABI; as producers go, it is the same memory.
    originals = {legacy: Managed(subject.shape, legacy=legacy) for legacy in (True, False)}

    def answer(keywords: dict[str, Any]) -> Any:
        legacy = not wants_versioned(keywords)
        if keywords.get("copy"):
            return Managed(subject.shape, legacy=legacy, flags=abi.IS_COPIED).capsule()
        return originals[legacy].capsule()

    array = _asked(subject, Producer(answer), copy=True)
    if isinstance(array, Exception):
        return failed(f"refused: {describe(array)}")
    if subject.pointer(array) in [original.pointer for original in originals.values()]:
        return failed("the array has the same memory")
    found, expected = subject.values(array), originals[True].values
    if found != expected:
        return failed(f"holds {found}")
    old = _Old(subject)
    other = attempt(subject, old, copy=True)
    if not isinstance(other, Exception) and subject.pointer(other) == old.tensor.pointer:
        return failed("the memory of a producer without the keyword is not copied")
    return passed()


@check(
    "consumer.copy-false", COPY + "if False, never copy, and raise BufferError if a copy is needed"
)
def copy_false(subject: Subject) -> Outcome:
    """from_dlpack(x, copy=False) has the producer's memory, or raises."""

    def answer(keywords: dict[str, Any]) -> Any:
        if keywords.get("copy") is False:
            raise BufferError("this producer can only copy")
        legacy = not wants_versioned(keywords)
        return Managed(subject.shape, legacy=legacy, flags=abi.IS_COPIED).capsule()

    array = _asked(subject, Producer(answer), copy=False)
    if not isinstance(array, Exception):
        return failed("copy=False is not passed on, and the producer copies")
    for keywords in ({"copy": False}, {"copy": False, "device": _device(subject)}):
        offer = Offer(subject, keywords=keywords)
        if not offer.refused and subject.pointer(offer.array) != offer.tensor.pointer:
            return failed(f"copied with {', '.join(keywords)}")
    return passed()


def _device(subject: Subject) -> Any:
    """What its arrays name as their device."""
    return getattr(taken(subject).array, "device", (abi.CPU, 0))


@check(
    "consumer.leaves-tensor",
    "DLPack 1.3, DLManagedTensor: it is the producer's until the deleter is called",
)
def leaves_tensor(subject: Subject) -> Outcome:
    """The import writes neither the descriptor nor the memory."""
    outcomes = []
    for legacy in (True, False):
        offer = Offer(subject, legacy=legacy)
        if offer.refused:
            continue
        outcomes.append(_written(offer))
        offer.array = None
        gc.collect()
        outcomes.append(_written(offer))
    if not outcomes:
        raise NotApplicable("imports neither ABI")
    return combine(*outcomes)


def _written(offer: Offer) -> Outcome:
    changed = offer.tensor.written()
    return failed(f"writes {', '.join(changed)}") if changed else passed()


@check("consumer.comes-back", "DLPack, Python specification: both arrays may continue to be used")
def comes_back(subject: Subject) -> Outcome:
    """An imported array is exported again over the same memory."""
    offer = taken(subject)
    if not hasattr(offer.array, "__dlpack__"):
        raise NotApplicable("its arrays have no __dlpack__")
    pointer, export = subject.pointer(offer.array), best(offer.array)
    if export.values() != offer.tensor.values:
        return failed(f"exported as {export.values()[:6]}")
    return passed() if export.pointer == pointer else warned("exported as a copy")
