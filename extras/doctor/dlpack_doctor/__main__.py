"""`python -m dlpack_doctor`: the same as `dlpack-doctor`."""

from dlpack_doctor.cli import run

if __name__ == "__main__":
    run()
