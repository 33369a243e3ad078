"""A time in words; measuring it belongs to `dlbridge._timing`."""

from __future__ import annotations


def show(time_in_ns: float) -> str:
    """A time in words."""
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if time_in_ns >= unit:
            return f"{time_in_ns / unit:.3g} {name}"
    return f"{time_in_ns:.0f} ns"
