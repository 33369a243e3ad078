"""The findings as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlbridge.doctor.findings import Findings
from dlbridge.doctor.report import grid
from dlbridge.doctor.timing import show
from dlbridge.doctor.verdict import Outcome, Verdict

SIGNS = {
    Verdict.PASS: "✓",
    Verdict.WARN: "△",
    Verdict.FAIL: "✗",
    Verdict.NOT_APPLICABLE: "·",
}
VERDICTS = (Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.NOT_APPLICABLE)


def text(findings: Findings, command: str) -> str:
    """The whole page; `command` is what makes it anew."""
    return "\n".join(_lines(findings, command)) + "\n"


def _lines(findings: Findings, command: str) -> Iterator[str]:
    subjects = grid.subjects(findings)
    names = [subject.name for subject in subjects]
    yield "# What the doctor found"
    yield ""
    yield f"Made on {findings.date}, not written by hand. `{command}` makes it anew."
    yield ""
    yield from (f"- {environment}" for environment in findings.environments)
    yield ""
    yield (
        "✓ as the standard says. △ allowed, but surprising. ✗ against the words of the standard, "
        "or unsafe. · not applicable."
    )
    yield ""
    yield from table(
        ["", "version", *(f"{SIGNS[v]} {v.value}" for v in VERDICTS)],
        (
            [s.name, s.version, *(str(grid.counts(findings, s.name)[v]) for v in VERDICTS)]
            for s in subjects
        ),
    )
    for subject in findings.subjects:
        if subject.problem:
            yield f"\n{subject.name} was not examined: {escape(subject.problem)}"
    yield from _matrix(findings, names)
    yield from _problems(findings)
    yield from _pairs(findings)
    yield from _times(findings)
    yield from explanations(findings)


def _matrix(findings: Findings, names: list[str]) -> Iterator[str]:
    yield "\n## Checks\n"
    rows = ([f"`{r.check.id}`", *map(_sign, r.outcomes)] for r in grid.rows(findings))
    yield from table(["check", *names], rows)


def _sign(outcome: Outcome | None) -> str:
    return "" if outcome is None else SIGNS[outcome.verdict]


def _problems(findings: Findings) -> Iterator[str]:
    yield "\n## Findings"
    rows = grid.rows(findings)
    for index, subject in enumerate(grid.subjects(findings)):
        found = [
            f"- {SIGNS[outcome.verdict]} `{row.check.id}`: {escape(outcome.evidence)}"
            for verdict in (Verdict.FAIL, Verdict.WARN)
            for row in rows
            if (outcome := row.outcomes[index]) is not None and outcome.verdict is verdict
        ]
        yield f"\n### {grid.label(subject)}\n"
        yield from found or ["Nothing."]


def _pairs(findings: Findings) -> Iterator[str]:
    names, rows = grid.pair_grid(findings)
    if not rows:
        return
    yield "\n## From one to the other\n"
    yield (
        "Producers stand on the left. `same`: the numbers are right, over the same memory, and "
        "the tensor is released once. An empty cell: never installed together.\n"
    )
    yield from table(
        ["", *names], ([producer, *map(grid.pair_word, pairs)] for producer, pairs in rows)
    )
    for pair in findings.pairs:
        if pair.outcome.verdict is Verdict.FAIL:
            yield f"\n{pair.producer} to {pair.consumer}: {escape(pair.outcome.evidence)}"


def _times(findings: Findings) -> Iterator[str]:
    found = grid.times(findings)
    ways = list(dict.fromkeys(way for _, times in found for way in times))
    if not ways:
        return
    yield "\n## Times\n"
    yield (
        "Medians on the machine that made this page. An export is given and released; "
        "`from_dlpack` takes a `dlbridge.Tensor` and lets it go.\n"
    )
    yield from table(
        ["", *ways],
        ([name, *(show(times[w]) if w in times else "" for w in ways)] for name, times in found),
    )


def explanations(findings: Findings) -> Iterator[str]:
    """What each check asks, and where the standard says so."""
    yield "\n## What is asked\n"
    yield from table(
        ["check", "it passes if", "where the standard says so"],
        (
            [f"`{row.check.id}`", escape(row.check.summary), escape(row.check.clause)]
            for row in grid.rows(findings)
        ),
    )


def table(headings: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    """A table in Markdown."""
    yield _line(headings)
    yield _line(["---"] * len(headings))
    yield from map(_line, rows)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(words: str) -> str:
    """Words that must not be taken for markup."""
    for sign in "\\|<>*_`[]":
        words = words.replace(sign, "\\" + sign)
    return words
