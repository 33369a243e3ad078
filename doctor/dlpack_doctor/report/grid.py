"""The findings in the order in which every report shows them.

How that looks belongs to `terminal`, `markdown` and `page`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dlbridge.doctor import registry
from dlbridge.doctor.findings import Examined, Findings, Pair
from dlbridge.doctor.pairs import COPIED, REFUSED, SAME
from dlbridge.doctor.verdict import Check, Outcome, Verdict


@dataclass(frozen=True)
class Row:
    """A check, and what it found about each subject."""

    check: Check
    outcomes: list[Outcome | None]


def subjects(findings: Findings) -> list[Examined]:
    """Those that were examined."""
    return [subject for subject in findings.subjects if not subject.problem]


def rows(findings: Findings) -> list[Row]:
    """All checks that ran, in their order."""
    names = [subject.name for subject in subjects(findings)]
    cells = {(r.check, r.subject): r.outcome for r in findings.results}
    found = [
        Row(check, [cells.get((check.id, name)) for name in names])
        for check in registry.all_checks()
    ]
    return [row for row in found if any(row.outcomes)]


def label(subject: Examined) -> str:
    """A name with its version."""
    named = subject.name.endswith(subject.version)
    return subject.name if named else f"{subject.name} {subject.version}"


def counts(findings: Findings, subject: str) -> Counter[Verdict]:
    """How many checks of a subject ended how."""
    return Counter(r.verdict for r in findings.results if r.subject == subject)


def pair_word(pair: Pair | None) -> str:
    """A pair in one word."""
    if pair is None:
        return ""
    outcome = pair.outcome
    if outcome.verdict is Verdict.FAIL:
        return "FAIL"
    if outcome.verdict is Verdict.NOT_APPLICABLE:
        return "-"
    words = {SAME: "same", COPIED: "copy", REFUSED: "refused"}
    return words.get(outcome.evidence.partition(":")[0], str(outcome.verdict.value))


def pair_grid(findings: Findings) -> tuple[list[str], list[tuple[str, list[Pair | None]]]]:
    """The consumers, and for each producer its pairs with them."""
    cells = {(pair.producer, pair.consumer): pair for pair in findings.pairs}
    names = [s.name for s in subjects(findings)]
    names = [name for name in names if any(name in cell for cell in cells)]
    return names, [(one, [cells.get((one, other)) for other in names]) for one in names]


def times(findings: Findings) -> list[tuple[str, dict[str, float]]]:
    """For each subject the nanoseconds by what took them."""
    found = []
    for subject in subjects(findings):
        taken: dict[str, float] = {}
        for result in findings.results:
            if result.subject == subject.name:
                taken |= result.outcome.times
        if taken:
            found.append((subject.name, taken))
    return found
