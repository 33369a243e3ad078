"""The result of a check: a verdict, its evidence, and a program that shows it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlpack_doctor import reproduce

PRODUCER, CONSUMER, PAIR = "producer", "consumer", "pair"


class Verdict(enum.StrEnum):
    """How a check ended."""

    PASS = "pass"
    WARN = "warn"
    """Allowed by the standard, but users notice it."""
    FAIL = "fail"
    """Violates the standard, or is unsafe."""
    NOT_APPLICABLE = "n/a"


@dataclass(frozen=True)
class Outcome:
    """A verdict with one line of evidence."""

    verdict: Verdict
    evidence: str
    times: Mapping[str, float] = field(default_factory=dict)
    """Nanoseconds, by the way that was timed."""
    reproducer: str = ""
    """A program that needs only the framework."""


def passed(evidence: str = "", times: Mapping[str, float] | None = None) -> Outcome:
    """The standard is met."""
    return Outcome(Verdict.PASS, evidence, times or {})


def warned(evidence: str) -> Outcome:
    """Allowed, but surprising."""
    return Outcome(Verdict.WARN, evidence, reproducer=reproduce.program(evidence))


def failed(evidence: str) -> Outcome:
    """The standard is violated, or memory is unsafe."""
    return Outcome(Verdict.FAIL, evidence, reproducer=reproduce.program(evidence))


class NotApplicable(Exception):
    """The check does not apply; the text says why."""


class Malformed(NotApplicable):
    """A descriptor that cannot be read: the check of that field fails, others do not apply."""


@dataclass(frozen=True)
class Check:
    """One question to a producer or a consumer."""

    id: str
    side: str
    summary: str
    """What a conforming framework does, in one line."""
    clause: str
    """Where the standard says so."""
    means: str
    """What a violation does to a user."""
    shows: str
    """The last lines of the reproducer; empty for those of the last call."""
    run: Callable[[Any], Outcome]


@dataclass(frozen=True)
class Result:
    """The outcome of a check for one subject."""

    check: str
    subject: str
    outcome: Outcome

    @property
    def verdict(self) -> Verdict:
        """How the check ended."""
        return self.outcome.verdict


def combine(*outcomes: Outcome) -> Outcome:
    """The worst of several outcomes, with the evidence of all that are equally bad."""
    if not outcomes:
        raise NotApplicable("it has or imports none of them")
    order = [Verdict.FAIL, Verdict.WARN, Verdict.PASS]
    worst = min((outcome.verdict for outcome in outcomes), key=order.index)
    bad = [outcome for outcome in outcomes if outcome.verdict is worst]
    lines = dict.fromkeys(outcome.evidence for outcome in bad if outcome.evidence)
    return Outcome(worst, "; ".join(lines), reproducer=bad[0].reproducer)


def describe(error: BaseException) -> str:
    """An exception in one short line."""
    text = " ".join(str(error).split())
    if len(text) > 120:
        text = text[:117] + "..."
    name = type(error).__name__
    return f"{name}: {text}" if text else name
