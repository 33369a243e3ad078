"""`python -m dlbridge COMMAND`: runs the programs of this package."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

USAGE = "usage: python -m dlbridge {doctor,demo} ..."


def doctor(words: list[str]) -> int:
    """Run the conformance suite, which is a separate package."""
    if importlib.util.find_spec("dlpack_doctor") is None:
        print("the doctor is a separate package: pip install dlpack-doctor", file=sys.stderr)
        return 2
    return subprocess.run([sys.executable, "-m", "dlpack_doctor", *words]).returncode


def main(words: list[str]) -> int:
    """Run the program named by the first word and return its exit code."""
    match words:
        case ["doctor", *rest]:
            return doctor(rest)
        case ["demo", *rest]:
            from dlbridge.demo import main as demo

            return demo(rest)
        case ["-h" | "--help"]:
            print(USAGE)
            return 0
    print(USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
