"""The findings as one HTML page that needs nothing else: no script, no font, no network.

Invariant: every word of a framework is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from dlbridge.doctor.findings import Findings, Pair
from dlbridge.doctor.report import grid
from dlbridge.doctor.report.plot import svg
from dlbridge.doctor.report.style import STYLE
from dlbridge.doctor.verdict import Outcome, Verdict

SIGNS = {
    Verdict.PASS: ("pass", "✓"),
    Verdict.WARN: ("warn", "!"),
    Verdict.FAIL: ("fail", "✗"),
    Verdict.NOT_APPLICABLE: ("none", "·"),
}
Cell = tuple[str, str, str, str]
"""A column, the class of its verdict, the sign, the words."""


def html(findings: Findings, command: str) -> str:
    """The whole page; `command` is what makes it anew."""
    return "".join(_page(findings, command))


def _page(findings: Findings, command: str) -> Iterator[str]:
    names = [subject.name for subject in grid.subjects(findings)]
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield f"<title>What the doctor found</title><style>{STYLE}</style></head><body><main>"
    yield "<h1>What the doctor found</h1>"
    yield f"<p>Made on {escape(findings.date)}. <code>{escape(command)}</code> makes it anew.</p>"
    yield "<ul>"
    yield "".join(f"<li>{escape(environment)}</li>" for environment in findings.environments)
    yield '</ul><p class="legend">'
    words = ("as the standard says", "allowed, but surprising", "against the standard, or unsafe")
    for (kind, sign), meaning in zip(SIGNS.values(), (*words, "not applicable"), strict=True):
        yield f'<span><b class="sign {kind}">{sign}</b> {meaning}</span> '
    yield "</p>"
    yield from _totals(findings)
    for side, title in (("producer", "As producers"), ("consumer", "As consumers")):
        yield f"<h2>{title}</h2><p>Open a line to see what was found.</p>"
        yield from _matrix(_checks(findings, names, side), names)
    consumers, rows = grid.pair_grid(findings)
    if rows:
        yield "<h2>From one to the other</h2><p>Each line is a producer, each cell a consumer.</p>"
        yield from _matrix(_pairs(consumers, rows), consumers)
    yield "<h2>Times</h2><p>An export is given and released; <code>from_dlpack</code> takes a "
    yield "<code>dlbridge.Tensor</code> and lets it go. The scale is logarithmic.</p>"
    yield f"{svg(grid.times(findings))}</main></body></html>\n"


def _totals(findings: Findings) -> Iterator[str]:
    yield '<div class="totals">'
    for subject in findings.subjects:
        yield f"<div><b>{escape(grid.label(subject))}</b><br>"
        if subject.problem:
            yield f"not examined: {escape(subject.problem)}</div>"
            continue
        count = grid.counts(findings, subject.name)
        for verdict, (kind, sign) in SIGNS.items():
            kind = kind if count[verdict] else "none"
            yield f'<span class="sign {kind}">{sign} {count[verdict]}</span> '
        yield "</div>"
    yield "</div>"


Line = tuple[str, str, list[Cell]]
"""A name, more about it as HTML, and the cells."""


def _checks(findings: Findings, names: list[str], side: str) -> Iterator[Line]:
    for row in grid.rows(findings):
        if row.check.side != side:
            continue
        more = f"<p>{escape(row.check.summary)}.<br><i>{escape(row.check.clause)}</i></p>"
        cells = [_cell(name, o) for name, o in zip(names, row.outcomes, strict=True)]
        yield row.check.id.partition(".")[2], more, cells


def _cell(name: str, outcome: Outcome | None) -> Cell:
    if outcome is None:
        return name, "none", "", "not asked"
    kind, sign = SIGNS[outcome.verdict]
    return name, kind, sign, outcome.evidence or outcome.verdict.value


def _pairs(consumers: list[str], rows: list[tuple[str, list[Pair | None]]]) -> Iterator[Line]:
    for producer, pairs in rows:
        cells = []
        for name, pair in zip(consumers, pairs, strict=True):
            if pair is None:
                cells.append((name, "none", "", "never installed together"))
            else:
                cells.append(_cell(name, pair.outcome))
        yield producer, "", cells


def _matrix(lines: Iterable[Line], names: list[str]) -> Iterator[str]:
    yield f'<div class="matrix" style="--columns:{len(names)}"><div class="head"><span></span>'
    yield "".join(f"<span>{escape(name)}</span>" for name in names)
    yield "</div>"
    for title, more, cells in lines:
        yield f'<details><summary><span class="title">{escape(title)}</span>'
        for name, kind, sign, words in cells:
            bad = kind in ("warn", "fail")
            title = f' title="{escape(f"{name}: {words}")}"' if bad else ""
            label = f'<span class="label">{escape(name)}</span>' if sign else ""
            yield f'<span class="cell sign {kind}"{title}>{label}{sign}</span>'
        yield f'</summary><div class="more">{more}<ul>{"".join(_evidence(cells))}</ul></div>'
        yield "</details>"
    yield "</div>"


def _evidence(cells: list[Cell]) -> Iterator[str]:
    """A line for each different evidence, with the names that it holds for."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for name, *found in cells:
        kind, sign, words = found
        names.setdefault((kind, sign, words), []).append(name)
    for (kind, sign, words), those in names.items():
        who = escape(", ".join(those))
        yield f'<li><b class="sign {kind}">{sign}</b> <b>{who}</b>: {escape(words)}</li>'
