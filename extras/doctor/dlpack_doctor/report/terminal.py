"""The findings in a terminal: all failures, and the warnings if they are asked for."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from dlpack_doctor.clock import show as words_of
from dlpack_doctor.findings import Findings
from dlpack_doctor.report import grid
from dlpack_doctor.verdict import Verdict

COLOURS = {"same": "green", "copy": "yellow", "refused": "yellow", "FAIL": "bold red"}
STYLES = {Verdict.FAIL: "bold red", Verdict.WARN: "yellow", Verdict.PASS: "green"}


def show(console: Console, findings: Findings, verbose: bool) -> None:
    """Print failures, warnings if asked for, the pairs, and a line for each subject."""
    found = grid.listed(findings)
    failures = [one for one in found if one.outcome.verdict is Verdict.FAIL]
    shown = found if verbose else failures
    for one in shown:
        _finding(console, one, verbose)
    broken = [pair for pair in findings.pairs if pair.outcome.verdict is Verdict.FAIL]
    for pair in broken:
        text = f"{pair.producer} to {pair.consumer}: {pair.outcome.evidence}"
        console.print(f"[bold red]FAIL[/] {escape(text)}")
    _pairs(console, findings)
    if verbose:
        _times(console, findings)
    for subject in findings.subjects:
        console.print(escape(grid.summary(findings, subject.name)))
    if len(found) > len(shown):
        text = f"{len(found) - len(shown)} warnings"
        console.print(f"{text}; -v shows them, and the clause and a program for each finding")


def _finding(console: Console, one: grid.Finding, verbose: bool) -> None:
    style = STYLES[one.outcome.verdict]
    word = one.outcome.verdict.value.upper()
    text = f"{one.subject} {one.check.id}: {one.outcome.evidence}"
    console.print(f"[{style}]{word}[/] {escape(text)}")
    if not verbose:
        return
    console.print(f"     standard: {escape(one.check.clause)}")
    console.print(f"     means: {escape(one.check.means)}")
    if one.outcome.reproducer:
        # Without a margin, so that it can be pasted.
        program = Syntax(one.outcome.reproducer, "python", word_wrap=False, theme="ansi_dark")
        console.print(program if console.is_terminal else escape(one.outcome.reproducer))


def _pairs(console: Console, findings: Findings) -> None:
    names, rows = grid.pair_grid(findings)
    if not rows:
        return
    table = Table("from \\ to", *names, box=None, pad_edge=False)
    for producer, pairs in rows:
        words = map(grid.pair_word, pairs)
        table.add_row(producer, *(f"[{COLOURS.get(word, 'dim')}]{word}[/]" for word in words))
    console.print(table)


def _times(console: Console, findings: Findings) -> None:
    found = grid.times(findings)
    ways = list(dict.fromkeys(way for _, times in found for way in times))
    if not ways:
        return
    table = Table("", *ways, box=None, pad_edge=False)
    for name, times in found:
        table.add_row(name, *(words_of(times[way]) if way in times else "" for way in ways))
    console.print(table)
