"""Times as horizontal bars, on a logarithmic scale: one SVG without anything from outside."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from dlbridge.doctor.timing import show

# Units of the drawing; 360 of them are a phone's width, so that text stays legible there.
WIDTH, BAR, GAP, TITLE, TEXT = 360, 12, 3, 20, 74
ROOM = WIDTH - TEXT - 60
LETTERS = 48
"""As many of a name as fit."""


def svg(times: list[tuple[str, dict[str, float]]]) -> str:
    """One group of bars for each subject."""
    values = [time for _, found in times for time in found.values()]
    if not values:
        return ""
    low, high = math.log10(min(values)) - 0.3, math.log10(max(values))
    bars = list(_bars(times, low, max(high - low, 0.1)))
    height = sum(TITLE + len(found) * (BAR + GAP) for _, found in times) + 8
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Times of exports and imports">{"".join(bars)}</svg>'
    )


WAYS = {
    "dltensor": ("old ABI", "w0"),
    "dltensor_versioned": ("versioned", "w1"),
    "exchange table": ("table", "w2"),
    "from_dlpack": ("from_dlpack", "w3"),
}


def _bars(times: list[tuple[str, dict[str, float]]], low: float, span: float) -> Iterator[str]:
    top = 0
    for name, found in times:
        shown = name if len(name) <= LETTERS else name[: LETTERS - 1] + "…"
        yield f'<text x="0" y="{top + 14}" class="name">{escape(shown)}</text>'
        top += TITLE
        for way, time in found.items():
            label, colour = WAYS.get(way, (way, "w0"))
            length = max(2.0, ROOM * (math.log10(time) - low) / span)
            middle = top + BAR - 2
            yield f'<text x="0" y="{middle}">{escape(label)}</text>'
            yield (
                f'<rect x="{TEXT}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2" '
                f'class="{colour}"><title>{escape(name)}, {escape(way)}: {show(time)}</title>'
                f'</rect><text x="{TEXT + length + 4:.1f}" y="{middle}">{show(time)}</text>'
            )
            top += BAR + GAP
