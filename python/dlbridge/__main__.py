"""`python -m dlbridge COMMAND`: the programs of this package by name."""

from __future__ import annotations

import sys

USAGE = "usage: python -m dlbridge {doctor,demo} ..."


def main(words: list[str]) -> int:
    """Run the program that the first word names; the result is the exit code."""
    match words:
        case ["doctor", *rest]:
            from dlbridge.doctor.cli import main as doctor

            return doctor(rest)
        case ["demo", *rest]:
            from dlbridge.demo.__main__ import main as demo

            return demo(rest)
        case ["-h" | "--help"]:
            print(USAGE)
            return 0
    print(USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
