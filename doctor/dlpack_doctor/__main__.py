"""`python -m dlbridge.doctor`: the same as `python -m dlbridge doctor`."""

import sys

from dlbridge.doctor.cli import main

if __name__ == "__main__":
    sys.exit(main())
