"""Instruction counts of the last state: stored, and compared with new ones."""

import os
import platform
import sys
from pathlib import Path

from tables import ROOT

# A line for each environment and call: dlbridge's instructions, and those of the reference.
COUNTS = ROOT / "benches/python/counts.txt"
HEAD = "# instructions of dlbridge and of the floor in C or NumPy, by Python"
# The relative growth that is reported, and the growth that fails.
REPORTED, FAILED = 0.02, 0.05

# The other library that takes the fewest instructions for a call, and its count.
PEERS = ROOT / "benches/python/peers.txt"

# By environment and path.
Peers = dict[tuple[str, str], tuple[str, int]]
Counts = dict[tuple[str, str], tuple[int, int | None]]


def stored() -> tuple[str, Counts]:
    """The version of Python that was measured, and the counts."""
    head, *rows = COUNTS.read_text().splitlines()
    counts: Counts = {}
    for environment, path, ours, other in (row.split() for row in rows):
        counts[environment, path] = int(ours), None if other == "-" else int(other)
    return head.split()[-1], counts


def peers() -> Peers:
    rows = (row.split() for row in PEERS.read_text().splitlines()[1:])
    return {(environment, path): (name, int(count)) for environment, path, name, count in rows}


def write_peers(found: Peers) -> None:
    """Replaces the rows that were measured."""
    found = peers() | found
    lines = [" ".join([*key, name, str(count)]) for key, (name, count) in sorted(found.items())]
    head = "# the fewest instructions of another library, by `cargo xtask bench python paths --write` and `calls --write`"
    PEERS.write_text("\n".join([head, *lines]) + "\n")


def overtaken(old: Counts, new: Counts, peers: Peers) -> list[str]:
    """A line for each call that took no more instructions than any other library, and takes clearly more now."""
    lines = []
    for key, (name, theirs) in peers.items():
        if key in old and key in new and old[key][0] <= theirs < new[key][0] / (1 + REPORTED):
            lines.append(f"{' '.join(key)}: {new[key][0]:,} instructions, {name} takes {theirs:,}")
    return lines


def python() -> str:
    return ".".join(platform.python_version_tuple()[:2])


def write(counts: Counts) -> None:
    cells = [[*key, str(ours), str(other or "-")] for key, (ours, other) in sorted(counts.items())]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
    COUNTS.write_text("\n".join([f"{HEAD} {python()}", *lines]) + "\n")
    print(f"wrote {COUNTS.relative_to(ROOT)}")


def compare(measured: Counts) -> None:
    """Reports each call that costs more than the stored state says, and fails if one costs much more."""
    before, old = stored()
    title = "More instructions than benches/python/counts.txt says:"
    if lines := grown(old, measured, REPORTED, is_same=before == python()):
        print(title, *lines, sep="\n")
        # In a workflow, the lines are shown at the top of the run and on its summary page.
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            print(*(f"::warning::{line}" for line in lines), sep="\n")
            with Path(summary).open("a") as file:
                print(f"{title}\n", *(f"- {line}" for line in lines), "", sep="\n", file=file)
    lines = grown(old, measured, FAILED, is_same=before == python())
    if before == python():
        lines += overtaken(old, measured, peers())
    if lines:
        # `cargo xtask` repeats such lines at the end of a long log.
        print(*(f"FAILED {line}" for line in lines), sep="\n")
        sys.exit(f"expected growth of less than {FAILED:.0%}, ahead of other libraries: see above")
    if missing := [" ".join(key) for key in old if key not in measured]:
        sys.exit("\n".join(["expected a count of each stored call, found none of", *missing]))


def grown(old: Counts, new: Counts, limit: float, *, is_same: bool) -> list[str]:
    """A line for each call whose cost has grown by the limit or more.

    Counts differ between compilers and Pythons, so what dlbridge adds to its reference is compared.
    It counts as grown if both the ratio and the difference have: with another Python, one of them
    may grow although the code is unchanged. Without a reference, only counts of the same Python are.
    """

    def has_grown(before: float, now: float) -> bool:
        return now >= before + limit * abs(before)

    lines = []
    for key in (key for key in old if key in new):
        (ours, other), (new_ours, new_other) = old[key], new[key]
        if other and new_other:
            more = has_grown(ours - other, new_ours - new_other)
            more = more and has_grown(ours / other, new_ours / new_other)
            # Where the two are near, their difference grows by what a reference loses from one environment to another.
            more = more and (not is_same or has_grown(ours, new_ours))
        else:
            more = is_same and has_grown(ours, new_ours)
        if more:
            change = f"{ours:,} -> {new_ours:,} instructions, {new_ours / ours - 1:+.1%}"
            moved = f" (reference: {other:,} -> {new_other:,})" if other != new_other else ""
            lines.append(f"{' '.join(key)}: {change.replace('%', ' %')}{moved}")
    return lines
