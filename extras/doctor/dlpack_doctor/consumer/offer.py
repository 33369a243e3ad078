"""One tensor of the doctor, offered to a consumer, and the result.

Judging that belongs to the checks.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any

from dlpack_doctor import abi, memory
from dlpack_doctor.source import Managed, Producer
from dlpack_doctor.subject import Array, Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, combine, describe, failed, passed, warned


def wants_versioned(keywords: dict[str, Any]) -> bool:
    """Whether a consumer says that it knows DLPack 1.0."""
    version = keywords.get("max_version")
    return version is not None and version[0] >= 1


def attempt(subject: Subject, producer: Any, **keywords: Any) -> Array | Exception:
    """The array that a consumer makes of a producer, or its exception."""
    try:
        array = subject.taken(producer, **keywords)
    except NotApplicable:
        raise
    except Exception as error:
        # Its frames would keep the capsule.
        error.__context__ = error.__cause__ = None
        return error.with_traceback(None)
    return ReturnedNone("from_dlpack returned None") if array is None else array


SAME_MEMORY = "the same memory"


class ReturnedNone(Exception):
    """No array, and no exception either."""


class Offer:
    """A tensor offered to `from_dlpack`, in the ABI that is asked for unless one is named.

    The fields of the tensor are those of `source.Managed`.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        legacy: bool | None = None,
        keywords: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        subject.importer()
        self.made: list[Managed] = []
        self.array: Array = None
        self.error: Exception | None = None
        fields.setdefault("shape", subject.shape)

        def answer(asked: dict[str, Any]) -> Any:
            old = not wants_versioned(asked) if legacy is None else legacy
            self.made.append(Managed(legacy=old, **fields))
            return self.made[-1].capsule()

        self.producer = Producer(answer, fields.get("device", (abi.CPU, 0)))
        # For the program, should the consumer crash before it asks.
        Managed(legacy=bool(legacy), **fields)
        result = attempt(subject, self.producer, **keywords or {})
        if isinstance(result, Exception):
            self.error = result
        else:
            self.array = result

    @property
    def tensor(self) -> Managed:
        """The tensor that was exported last."""
        if not self.made:
            raise NotApplicable("the producer was not asked for a tensor")
        return self.made[-1]

    @property
    def refused(self) -> bool:
        """Whether there is no array."""
        return self.error is not None

    @property
    def refusal(self) -> str:
        """The exception in one line."""
        return "" if self.error is None else describe(self.error)

    def releases(self) -> int:
        """How often all tensors were released, once nothing refers to them."""
        self.array = self.error = None
        self.producer.capsules.clear()
        memory.settle(lambda: all(one.releases + one.dropped for one in self.made), seconds=1)
        gc.collect()
        return sum(one.releases for one in self.made)


def asks(subject: Subject) -> None:
    """The check is of the call of `__dlpack__`, which its caller makes for some functions."""
    if subject.capsules_only:
        raise NotApplicable("it imports capsules, and calls no __dlpack__")


def taken(subject: Subject, **fields: Any) -> Offer:
    """An offer that is imported; otherwise the check does not apply."""
    offer = Offer(subject, **fields)
    if offer.refused:
        raise NotApplicable(f"does not import it ({offer.refusal})")
    return offer


def judge(subject: Subject, **fields: Any) -> Outcome:
    """Whether a tensor is imported, and with the right numbers."""
    offer = Offer(subject, **fields)
    if offer.refused:
        return warned(f"refused: {offer.refusal}")
    expected = offer.tensor.values
    beyond = offer.tensor.pointer - subject.pointer(offer.array) if expected else 0
    if beyond and beyond % (1 << 32) == 0:
        return failed("reads the byte offset as 32 bits")
    try:
        found = subject.values(offer.array)
    except NotApplicable:
        raise
    except Exception as error:
        return failed(f"imported, but reading it is {describe(error)}")
    if found != expected:
        return failed(f"holds {found[:6]}, not {expected[:6]}")
    if expected and subject.pointer(offer.array) != offer.tensor.pointer:
        return passed("copied")
    return passed(SAME_MEMORY)


def judge_each(subject: Subject, *forms: Mapping[str, Any]) -> Outcome:
    """The worst of several tensors, without those that are refused where others are imported."""
    outcomes = [judge(subject, **form) for form in forms]
    imported = [outcome for outcome in outcomes if not outcome.evidence.startswith("refused")]
    return combine(*imported or outcomes)


def refuses(subject: Subject, accepts: Callable[[Offer], Outcome], **fields: Any) -> Outcome:
    """A refusal passes; a function judges the array that is made otherwise."""
    offer = Offer(subject, **fields)
    return passed(offer.refusal) if offer.refused else accepts(offer)
