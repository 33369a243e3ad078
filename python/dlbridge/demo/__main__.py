"""Imports arrays of the installed frameworks into Rust and exports them again, without copying.

The exit code is 0 if every check passes, and 1 otherwise.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence

import dlbridge
from dlbridge.demo import frameworks, table
from dlbridge.demo.check import Row, check

KIBI, MEBI = 1 << 10, 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dlbridge.demo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller arrays, shorter timings")
    options = parser.parse_args(arguments)
    sizes = [KIBI, MEBI] if options.quick else [KIBI, MEBI, 64 * MEBI]
    budget = 0.02 if options.quick else 0.3

    shown, missing = frameworks.found()
    print(
        f"dlbridge {dlbridge.__version__}, Python {platform.python_version()}: arrays shared with"
    )
    print("Rust and exported again, over the same memory\n")
    rows = []
    for framework in shown:
        progress(f"... {framework.name}")
        rows.append(check(framework, sizes, budget))
    progress("")
    return report(rows, missing)


def progress(text: str) -> None:
    """Show progress on a terminal, on a line that the next call overwrites."""
    if sys.stderr.isatty():
        print(text.ljust(40), end="\r", file=sys.stderr, flush=True)


def report(rows: list[Row], missing: list[str]) -> int:
    """Print the rows and return the exit code."""
    print(*table.facts(rows), "", *table.times(rows), sep="\n")
    print("\nelements are float32; times are medians; an exchange is one import and one export")
    if missing:
        print(f"not installed: {', '.join(missing)}")
    wrong = [f"{row.framework}: {reason}" for row in rows for reason in row.wrong]
    if wrong:
        print("\nWRONG:", *wrong, sep="\n  ")
        return 1
    print("\nEvery array kept its memory: nothing was copied.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
