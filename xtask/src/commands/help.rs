//! `cargo xtask help`: everything on one screen.

use crate::failure::Result;

const TEXT: &str = "\
cargo xtask COMMAND: the project's own commands. Each one sets up what it needs.

  demo      share tensors between everything that is installed, and check every value
  test      all tests: cargo test, pytest, examples
              test rust ARGS...     cargo test alone, ARGS are cargo's
              test python ARGS...   pytest alone, ARGS are pytest's
  lint      formatting, clippy, every feature alone, docs, Python checks, house rules, msrv
  msrv      the libraries with the oldest Rust that they promise to build with
  sanitize  the Rust tests under AddressSanitizer, Miri and valgrind, where there are such
  doctor    whether frameworks keep to the DLPack standard, and how fast they are
              doctor NAMES...       only these; all words but ours are the doctor's (--list)
              doctor --full         installs every framework first
              doctor --report       the same, and writes docs/doctor.md and docs/doctor.html
  bench     the measurements: bench rust
  setup     .venv with the Python packages that the other commands need
  ci        what CI runs: setup --with ci, lint, test
  help      this page

  fuzz, bench python: not built yet

demo, doctor, test and setup take `--with NAMES`: Python packages to install first and keep, such as
jax, torch, pyarrow, tvm-ffi (requirements/ lists all), ci or full for many at once.
DLBRIDGE_PYTHON names the Python (3.10 or newer) for .venv; otherwise python3 is taken.
";

/// Prints the overview.
pub(crate) fn run() -> Result {
    print!("{TEXT}");
    Ok(())
}
