"""Instruction counts of past states, one row each: kept, compared with new ones, drawn."""

import os
import sys
from pathlib import Path
from typing import Any

from build import FLOOR, OURS
from paths import PATHS
from tables import ROOT, Section

# Rows of words: date, commit, then dlbridge's count and the floor's (`612/1127`) for each path.
COUNTS = ROOT / "benches/python/counts.txt"
# The relative growth that is reported, and the growth that fails.
REPORTED, FAILED = 0.02, 0.05

# The instructions of the floor and of dlbridge, by path.
Counts = dict[str, dict[str, int]]


def states() -> list[tuple[str, str, Counts]]:
    """The measured states: date, commit and counts."""
    heads, *rows = (line.split() for line in COUNTS.read_text().splitlines())
    found = []
    for date, commit, *cells in rows:
        both = {
            path: [int(count) for count in cell.split("/")]
            for path, cell in zip(heads[2:], cells, strict=True)
            if cell != "-"
        }
        counts = {
            path: {OURS: ours, FLOOR: floor} for path, (ours, floor) in both.items()
        }
        found.append((date, commit, counts))
    return found


def latest() -> Counts:
    """The last count of each path."""
    return {path: both for *_, counts in states() for path, both in counts.items()}


def add(measured: Counts, date: str, commit: str) -> None:
    """Adds a state, in place of the last one if that has the same commit."""
    kept = [state for state in states() if state[1] != commit]
    kept.append((date, commit, measured))
    names = [path for path in PATHS if any(path in counts for *_, counts in kept)]
    rows = [["date", "commit", *names]]
    for day, name, counts in kept:
        found = [counts.get(path) for path in names]
        rows.append(
            [
                day,
                name,
                *(f"{both[OURS]}/{both[FLOOR]}" if both else "-" for both in found),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    COUNTS.write_text("\n".join(lines) + "\n")
    print(f"wrote {COUNTS.relative_to(ROOT)}")


def compare(measured: Counts) -> None:
    """Reports each path that costs more than the last state, and fails if one costs much more.

    Counts differ between compilers and Pythons, so only the cost that dlbridge adds to the
    floor is compared. It counts as grown if both the ratio to the floor and the difference
    have grown: with another Python, one of them may grow although the code is unchanged.
    """
    title = f"Instructions since {states()[-1][1]}:"
    if lines := grown(latest(), measured, REPORTED):
        print(title, *lines, sep="\n")
        # In a workflow, the lines are shown at the top of the run and on its summary page.
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            print(*(f"::warning::{line}" for line in lines), sep="\n")
            with Path(summary).open("a") as file:
                print(
                    f"{title}\n",
                    *(f"- {line}" for line in lines),
                    "",
                    sep="\n",
                    file=file,
                )
    if lines := grown(latest(), measured, FAILED):
        sys.exit(
            "\n".join([f"expected growth of less than {FAILED:.0%}, found", *lines])
        )


def grown(old: Counts, new: Counts, limit: float) -> list[str]:
    """A line for each path whose cost has grown by the limit or more."""

    def has_grown(before: float, now: float) -> bool:
        return now >= before + limit * abs(before)

    lines = []
    for path in (path for path in PATHS if path in old and path in new):
        (floor, ours), (new_floor, new_ours) = (
            [counts[path][who] for who in (FLOOR, OURS)] for counts in (old, new)
        )
        more = has_grown(ours - floor, new_ours - new_floor)
        if more and has_grown(ours / floor, new_ours / new_floor):
            change = (
                f"{ours:,} -> {new_ours:,} instructions, {new_ours / ours - 1:+.1%}"
            )
            floors = (
                f" (floor: {floor:,} -> {new_floor:,})" if floor != new_floor else ""
            )
            lines.append(
                f"{path.replace('-', ' ')}: {change.replace('%', ' %')}{floors}"
            )
    return lines


def section() -> Section:
    """The counts of all states, as a chart."""
    body = """\
Instructions of each path through dlbridge (with the last count) and through the floor (grey), in every state of
[counts.txt](../benches/python/counts.txt). A commit with a plus sign had changes on top."""

    def draw() -> Any:
        from charts import history

        marks = [f"{date[5:]} {commit}" for date, commit, _ in states()]
        panels = []
        for path, (title, _) in PATHS.items():
            every = [counts.get(path) for *_, counts in states()]
            points = [
                (i, both[OURS], both[FLOOR]) for i, both in enumerate(every) if both
            ]
            if points:
                panels.append((title, points))
        return history("Instructions of each path in Python, by commit", marks, panels)

    return Section("Python: history", body, "--check", "history", draw)
