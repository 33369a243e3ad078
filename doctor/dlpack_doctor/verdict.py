"""What a check finds: a verdict and one line that shows it.

What is checked does not belong here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

PRODUCER, CONSUMER, PAIR = "producer", "consumer", "pair"


class Verdict(str, enum.Enum):
    """How a check ended."""

    PASS = "pass"
    WARN = "warn"
    """Allowed, but surprising: somebody will meet it."""
    FAIL = "fail"
    """Against the words of the standard, or unsafe."""
    NOT_APPLICABLE = "n/a"


@dataclass(frozen=True)
class Outcome:
    """A verdict with one line of evidence."""

    verdict: Verdict
    evidence: str
    times: Mapping[str, float] = field(default_factory=dict)
    """Nanoseconds, by what took them."""


def passed(evidence: str = "", times: Mapping[str, float] | None = None) -> Outcome:
    """All is as the standard says."""
    return Outcome(Verdict.PASS, evidence, times or {})


def warned(evidence: str) -> Outcome:
    """Allowed, but surprising."""
    return Outcome(Verdict.WARN, evidence)


def failed(evidence: str) -> Outcome:
    """Against the standard, or unsafe."""
    return Outcome(Verdict.FAIL, evidence)


class NotApplicable(Exception):
    """There is nothing to check here, and why."""


@dataclass(frozen=True)
class Check:
    """One question to a producer or a consumer."""

    id: str
    side: str
    summary: str
    """What is asked, in one line."""
    clause: str
    """Where the standard says so."""
    run: Callable[[Any], Outcome]


@dataclass(frozen=True)
class Result:
    """What a check found about one subject."""

    check: str
    subject: str
    outcome: Outcome

    @property
    def verdict(self) -> Verdict:
        """How the check ended."""
        return self.outcome.verdict


def combine(*outcomes: Outcome) -> Outcome:
    """The worst of some outcomes, with the evidence of all that are as bad."""
    order = [Verdict.FAIL, Verdict.WARN, Verdict.PASS]
    worst = min((outcome.verdict for outcome in outcomes), key=order.index)
    lines = [o.evidence for o in outcomes if o.verdict is worst and o.evidence]
    return Outcome(worst, "; ".join(dict.fromkeys(lines)))


def describe(error: BaseException) -> str:
    """An exception in one short line."""
    text = " ".join(str(error).split())
    if len(text) > 120:
        text = text[:117] + "..."
    name = type(error).__name__
    return f"{name}: {text}" if text else name
