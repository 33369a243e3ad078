"""The findings in the order in which every report shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dlpack_doctor import registry
from dlpack_doctor.findings import Examined, Findings, Pair
from dlpack_doctor.pairs import COPIED, REFUSED, SAME
from dlpack_doctor.verdict import Check, Outcome, Verdict


@dataclass(frozen=True)
class Row:
    """A check, and its outcome for each subject."""

    check: Check
    outcomes: list[Outcome | None]


@dataclass(frozen=True)
class Finding:
    """A failure or a warning of one subject."""

    subject: str
    check: Check
    outcome: Outcome


def subjects(findings: Findings) -> list[Examined]:
    """Those that were examined."""
    return [subject for subject in findings.subjects if not subject.problem]


def rows(findings: Findings, side: str = "") -> list[Row]:
    """All checks that ran, in their order."""
    names = [subject.name for subject in subjects(findings)]
    cells = {(r.check, r.subject): r.outcome for r in findings.results}
    found = [
        Row(check, [cells.get((check.id, name)) for name in names])
        for check in registry.all_checks(side or None)
    ]
    return [row for row in found if any(row.outcomes)]


def listed(findings: Findings, subject: str = "") -> list[Finding]:
    """Failures, then warnings; of one subject, if one is named."""
    checks = {check.id: check for check in registry.all_checks()}
    return [
        Finding(r.subject, checks[r.check], r.outcome)
        for verdict in (Verdict.FAIL, Verdict.WARN)
        for r in findings.results
        if r.verdict is verdict and subject in ("", r.subject) and r.check in checks
    ]


def label(subject: Examined) -> str:
    """A name with its version."""
    named = subject.name.endswith(subject.version)
    return subject.name if named else f"{subject.name} {subject.version}"


def counts(findings: Findings, subject: str) -> Counter[Verdict]:
    """How many checks of a subject ended how."""
    return Counter(r.verdict for r in findings.results if r.subject == subject)


def summary(findings: Findings, name: str) -> str:
    """A subject in one line."""
    subject = next(s for s in findings.subjects if s.name == name)
    count = counts(findings, name)
    text = ", ".join(f"{count[verdict]} {verdict.value}" for verdict in Verdict)
    return f"{label(subject)}: " + (f"not examined: {subject.problem}" if subject.problem else text)


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
    apply = [cell for cell, pair in cells.items() if pair_word(pair) != "-"]
    consumers = [name for name in names if any(name == consumer for _, consumer in apply)]
    producers = [name for name in names if any(name == producer for producer, _ in apply)]
    return consumers, [(one, [cells.get((one, other)) for other in consumers]) for one in producers]


def times(findings: Findings) -> list[tuple[str, dict[str, float]]]:
    """For each subject the nanoseconds by the way that was timed."""
    found: dict[str, dict[str, float]] = {}
    for result in findings.results:
        if result.outcome.times:
            found.setdefault(result.subject, {}).update(result.outcome.times)
    return [(s.name, found[s.name]) for s in subjects(findings) if s.name in found]


@dataclass(frozen=True)
class Change:
    """A check whose verdict differs between two pages."""

    subject: str
    versions: str
    check: str
    before: Verdict
    after: Outcome


def changes(findings: Findings, before: Findings) -> Iterator[Change]:
    """The checks that ended otherwise than before; of subjects that both have."""
    versions = {s.name: s.version for s in before.subjects}
    verdicts = {(r.check, r.subject): r.verdict for r in before.results}
    for subject in subjects(findings):
        if subject.name not in versions:
            continue
        old, new = versions[subject.name], subject.version
        words = new if old == new else f"{old} to {new}"
        for row in rows(findings):
            outcome = findings.of(row.check.id, subject.name)
            verdict = verdicts.get((row.check.id, subject.name))
            if outcome is not None and verdict not in (None, outcome.verdict):
                assert verdict is not None
                yield Change(subject.name, words, row.check.id, verdict, outcome)
