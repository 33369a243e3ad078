"""The findings as lines of text, with colours if they are wanted."""

from __future__ import annotations

from collections.abc import Iterator

from dlbridge.doctor.findings import Findings
from dlbridge.doctor.report import grid
from dlbridge.doctor.timing import show
from dlbridge.doctor.verdict import Outcome, Verdict

WORDS = {
    Verdict.PASS: "pass",
    Verdict.WARN: "warn",
    Verdict.FAIL: "FAIL",
    Verdict.NOT_APPLICABLE: "-",
}
_LETTERS = {".": "pass", "w": "warn", "c": "copy", "r": "refused", "F": "FAIL"}
_COLOURS = {"pass": 32, "same": 32, "warn": 33, "copy": 33, "refused": 33, "FAIL": 31}


def lines(findings: Findings, *, width: int, colour: bool) -> Iterator[str]:
    """Everything, for a terminal of so many columns."""
    subjects = grid.subjects(findings)
    names = [subject.name for subject in subjects]
    rows = [
        [row.check.id, *(_word(outcome) for outcome in row.outcomes)] for row in grid.rows(findings)
    ]
    yield ", ".join(map(grid.label, subjects))
    yield ""
    yield from table([["check", *names], *rows], width, colour)
    yield from _problems(findings, colour)
    yield from _pairs(findings, width, colour)
    yield from _times(findings)
    yield ""
    for subject in subjects:
        count = grid.counts(findings, subject.name)
        text = ", ".join(f"{count[verdict]} {verdict.value}" for verdict in Verdict)
        yield f"{subject.name}: {text}"
    for subject in findings.subjects:
        if subject.problem:
            yield f"{subject.name}: not examined: {subject.problem}"


def _word(outcome: Outcome | None) -> str:
    return "" if outcome is None else WORDS[outcome.verdict]


def _problems(findings: Findings, colour: bool) -> Iterator[str]:
    for verdict in (Verdict.FAIL, Verdict.WARN):
        yield ""
        for row in grid.rows(findings):
            for subject, outcome in zip(grid.subjects(findings), row.outcomes, strict=True):
                if outcome is not None and outcome.verdict is verdict:
                    word = paint(WORDS[verdict], colour)
                    yield f"{word} {subject.name} {row.check.id}: {outcome.evidence}"
                    if verdict is Verdict.FAIL:
                        yield f"     {row.check.clause}"


def _pairs(findings: Findings, width: int, colour: bool) -> Iterator[str]:
    names, rows = grid.pair_grid(findings)
    if not rows:
        return
    yield ""
    cells = [[producer, *map(grid.pair_word, pairs)] for producer, pairs in rows]
    yield from table([["from \\ to", *names], *cells], width, colour)
    for pair in findings.pairs:
        if pair.outcome.verdict is Verdict.FAIL:
            yield f"{paint('FAIL', colour)} {pair.producer} to {pair.consumer}: " + (
                pair.outcome.evidence
            )


def _times(findings: Findings) -> Iterator[str]:
    for name, times in grid.times(findings):
        text = ", ".join(f"{what} {show(time)}" for what, time in times.items())
        yield f"{name}: {text}"


def table(cells: list[list[str]], width: int, colour: bool) -> Iterator[str]:
    """Columns of equal width; with numbers and letters where names and words do not fit."""
    if sum(max(map(len, column)) + 2 for column in zip(*cells, strict=True)) > width:
        names = cells[0][1:]
        for number, name in enumerate(names, 1):
            yield f"{number:>3}  {name}"
        numbers = [str(number + 1) for number in range(len(names))]
        letters = [[row[0], *(_letter(word) for word in row[1:])] for row in cells[1:]]
        cells = [[cells[0][0], *numbers], *letters]
        yield "  .  pass or same, w warn, c copy, r refused, F FAIL, - not applicable"
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(
            paint(cell, colour) + " " * (size - len(cell))
            for cell, size in zip(row, widths, strict=True)
        ).rstrip()


def _letter(word: str) -> str:
    return "." if word in ("pass", "same") else word[:1]


def paint(word: str, colour: bool) -> str:
    """A word in its colour."""
    code = _COLOURS.get(word) or _COLOURS.get(_LETTERS.get(word, ""))
    return f"\033[{code}m{word}\033[0m" if colour and code else word
