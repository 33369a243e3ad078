"""The findings through the templates of this folder."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jinja2

from dlpack_doctor.clock import COPY, show
from dlpack_doctor.findings import Findings
from dlpack_doctor.pairs import ARRAYS
from dlpack_doctor.report import grid
from dlpack_doctor.verdict import Outcome, Verdict

SIGNS = {
    Verdict.PASS: ("pass", "✓", "conforms"),
    Verdict.WARN: ("warn", "△", "allowed, but users notice it"),
    Verdict.FAIL: ("fail", "✗", "violates the standard, or is unsafe"),
    Verdict.NOT_APPLICABLE: ("none", "·", "not applicable"),
}


def page(template: str, findings: Findings, command: str, before: Findings | None = None) -> str:
    """One page; `command` makes it again, `before` is an earlier run."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dlpack_doctor.report"),
        autoescape=lambda name: name != "page.md.j2",
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"md": escape, "time": show}
    consumers, pairs = grid.pair_grid(findings)
    times = grid.times(findings)
    return environment.get_template(f"{template}.j2").render(
        findings=findings,
        grid=grid,
        command=command,
        signs=SIGNS,
        subjects=grid.subjects(findings),
        consumers=consumers,
        arrays=ARRAYS,
        pairs=pairs,
        times=times,
        ways=list(dict.fromkeys(way for _, found in times for way in found)),
        copy=COPY,
        length=_scale([time for _, found in times for time in found.values()]),
        changes=list(grid.changes(findings, before)) if before else None,
        before=before,
        zipped=_grouped,
    )


def _grouped(names: list[str], outcomes: list[Outcome | None]) -> list[tuple[Outcome, list[str]]]:
    """Each different outcome, with the names that it holds for."""
    found: dict[tuple[Verdict, str], tuple[Outcome, list[str]]] = {}
    for name, outcome in zip(names, outcomes, strict=True):
        if outcome:
            found.setdefault((outcome.verdict, outcome.evidence), (outcome, []))[1].append(name)
    return list(found.values())


def _scale(times: list[float]) -> Callable[[float], Any]:
    """The length of a bar in percent, on a logarithmic scale."""
    low = math.log10(min(times, default=1)) - 0.3
    span = max(math.log10(max(times, default=10)) - low, 0.1)
    return lambda time: round(100 * (math.log10(time) - low) / span, 1)


def escape(words: str) -> str:
    """Text with Markdown's special characters escaped."""
    for sign in "\\|<>*_`[]":
        words = words.replace(sign, "\\" + sign)
    return words
