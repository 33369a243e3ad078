"""How a consumer calls `__dlpack__`, and which answers it accepts."""

from __future__ import annotations

import gc
from typing import Any

from dlpack_doctor import abi, reproduce
from dlpack_doctor.consumer.offer import Offer, asks, judge, taken, wants_versioned
from dlpack_doctor.export import best
from dlpack_doctor.registry import check
from dlpack_doctor.source import Managed, Producer
from dlpack_doctor.subject import Subject
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


@check(
    "consumer.takes",
    "a tensor of a producer without a fault is imported, with its numbers",
    clause="array API, from_dlpack: an array with the data of x",
)
def takes(subject: Subject) -> Outcome:
    outcome = judge(subject)
    if outcome.evidence.startswith("refused"):
        return failed(outcome.evidence)
    if outcome.verdict is Verdict.PASS and subject.capsules_only:
        reproduce.note(take=subject.take_code)
        return warned("imports capsules, not the objects with __dlpack__ that make them")
    return outcome


@check(
    "consumer.keywords",
    "__dlpack__ is called with keywords that the standard has, and proper values",
    clause="array API 2023.12, __dlpack__",
)
def keywords(subject: Subject) -> Outcome:
    asks(subject)
    calls = Offer(subject).producer.calls
    if not calls:
        raise NotApplicable("__dlpack__ was not called")
    used: dict[str, Any] = {}
    for call in calls:
        used |= call
    unknown = used.keys() - KNOWN
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


@check(
    "consumer.asks-versioned",
    "the versioned ABI is requested",
    clause="DLPack 1.3, DLManagedTensor: deprecated since 1.0",
)
def asks_versioned(subject: Subject) -> Outcome:
    asks(subject)
    calls = Offer(subject).producer.calls
    if not calls:
        raise NotApplicable("__dlpack__ was not called")
    if any(map(wants_versioned, calls)):
        return passed()
    return warned("max_version is not passed, so READ_ONLY and IS_COPIED never arrive")


@check(
    "consumer.old-producer",
    "a producer that knows `stream` alone is asked again without the other keywords",
    clause=RECOMMENDED + "on TypeError, call without the newer keywords",
)
def old_producer(subject: Subject) -> Outcome:
    asks(subject)
    made = Managed(subject.shape, legacy=True)
    capsules: list[object] = []

    class Old:
        def __dlpack__(self, stream: object = None) -> object:
            capsules.append(made.capsule())
            return capsules[-1]

        def __dlpack_device__(self) -> tuple[int, int]:
            return (abi.CPU, 0)

    try:
        array = subject.taken(Old())
    except NotApplicable:
        raise
    except Exception as error:
        return warned(f"refused: {describe(error)}")
    found = subject.values(array)
    return passed() if found == made.values else failed(f"holds {found}, not {made.values}")


@check(
    "consumer.old-answer",
    "a legacy capsule is imported, whatever was requested",
    clause="array API 2023.12, max_version: the answer may have a different version",
)
def old_answer(subject: Subject) -> Outcome:
    return judge(subject, legacy=True)


@check(
    "consumer.new-answer",
    "a versioned capsule is imported, even if it was not requested",
    clause="array API 2023.12, max_version: the answer may have a different version",
)
def new_answer(subject: Subject) -> Outcome:
    return judge(subject, legacy=False)


@check(
    "consumer.newer-minor",
    "a header of a newer minor version is imported",
    clause="DLPack 1.3, DLPackVersion: a minor version only adds enumeration values",
)
def newer_minor(subject: Subject) -> Outcome:
    taken(subject, legacy=False)
    outcome = judge(subject, legacy=False, version=(1, 99))
    return failed(outcome.evidence) if outcome.evidence.startswith("refused") else outcome


@check(
    "consumer.read-only",
    "a read-only tensor becomes an array that cannot be written",
    clause="array API, __dlpack__, notes: libraries without read-only arrays ignore the flag",
)
def read_only(subject: Subject) -> Outcome:
    offer = taken(subject, legacy=False, flags=abi.READ_ONLY)
    if subject.is_frozen(offer.array):
        return passed()
    if subject.pointer(offer.array) != offer.tensor.pointer:
        return passed("copied, so it may be written")
    return warned("a writable array over read-only memory")


@check(
    "consumer.zero-copy",
    "the array is over the producer's memory",
    clause="DLPack, Python specification: zero-copy if possible",
)
def zero_copy(subject: Subject) -> Outcome:
    offer = taken(subject)
    found, expected = subject.pointer(offer.array), offer.tensor.pointer
    return passed() if found == expected else warned("the numbers are copied")


@check(
    "consumer.copy-true",
    "from_dlpack(x, copy=True) copies to memory of its own",
    clause="array API 2023.12, from_dlpack, copy: if True, always copy",
)
def copy_true(subject: Subject) -> Outcome:
    if subject.take_copy is None:
        raise NotApplicable("has no copy keyword")
    # One of each ABI; as producers go, it is the same memory.
    originals = {legacy: Managed(subject.shape, legacy=legacy) for legacy in (True, False)}

    def answer(keywords: dict[str, Any]) -> Any:
        legacy = not wants_versioned(keywords)
        if keywords.get("copy"):
            return Managed(subject.shape, legacy=legacy, flags=abi.IS_COPIED).capsule()
        return originals[legacy].capsule()

    reproduce.note(setup=subject.setup, take=f"{subject.take_code[:-1]}, copy=True)")
    try:
        array = subject.take_copy(Producer(answer))
    except TypeError as error:
        raise NotApplicable(f"has no copy keyword ({describe(error)})") from None
    except Exception as error:
        return failed(f"refused: {describe(error)}")
    if subject.pointer(array) in [original.pointer for original in originals.values()]:
        return failed("the array has the same memory")
    found, expected = subject.values(array), originals[True].values
    return passed() if found == expected else failed(f"holds {found}")


@check(
    "consumer.leaves-tensor",
    "the import writes neither the descriptor nor the memory",
    clause="DLPack 1.3, DLManagedTensor: it is the producer's until the deleter is called",
)
def leaves_tensor(subject: Subject) -> Outcome:
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


@check(
    "consumer.comes-back",
    "an imported array is exported again over the same memory",
    clause="DLPack, Python specification: both arrays may continue to be used",
)
def comes_back(subject: Subject) -> Outcome:
    offer = taken(subject)
    if not hasattr(offer.array, "__dlpack__"):
        raise NotApplicable("its arrays have no __dlpack__")
    pointer, export = subject.pointer(offer.array), best(offer.array)
    if export.values() != offer.tensor.values:
        return failed(f"exported as {export.values()[:6]}")
    return passed() if export.pointer == pointer else warned("exported as a copy")
