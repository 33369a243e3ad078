//! `cargo xtask help`: everything on one screen.

use crate::failure::Result;

const TEXT: &str = "\
cargo xtask COMMAND: the project's own commands. Each one sets up what it needs.

  demo      share tensors between everything that is installed, and check every value
  test      all tests: cargo test, pytest, Julia's, examples
              test rust ARGS...     cargo test alone, ARGS are cargo's
              test python ARGS...   pytest alone, ARGS are pytest's
              test julia FILES...   the Julia package alone, FILES lie in its folder test
              test free-threaded ARGS...  pytest on a Python without the global lock
  lint      formatting, clippy, every feature alone, docs, Python checks, house rules, guide,
            msrv
  msrv      the libraries with the oldest Rust that they promise to build with
  sanitize  the tests under tools that see wrong accesses, leaks and races, where there are such
              sanitize TOOL         one of address, python, thread, valgrind, miri
              --minutes N           how long Miri runs (30)
  fuzz      hostile input for the gate, layouts, views and the builder, against a model
              fuzz TARGETS...       only these; --seconds N for each (20), --seed S
              fuzz --asan           under AddressSanitizer, with a nightly Rust
              fuzz --keep           puts inputs that reach something new into the corpus
  doctor    whether frameworks keep to the DLPack standard, and how fast they are
              doctor NAMES...       only these; all words but ours are the doctor's (--list)
              doctor --full         installs every framework first
              doctor --report       the same, and writes docs/doctor.* (several GB)
  bench     the measurements: in Rust, in Python, and in Julia where there is one.
            --write keeps what was found in docs/benchmarks.md, with charts
              bench rust            shares beside the peers, loops over views, sizes, threads;
                                    shares, views, sizes or threads alone
              bench python          dlbridge, a floor in C and other libraries: instructions
                                    (valgrind counts them), allocations, time; sizes; threads.
                                    paths, sizes or threads alone. --quick leaves other
                                    libraries out, --json FILE writes all numbers of the
                                    paths, --python PATH takes another Python, such as a
                                    free-threaded one
              bench julia           shares with Python, next to one by hand
              bench --check         whether instructions have become more; --write takes
                                    the new number for the right one
  capi      the C libraries, header and pkg-config file, into target/capi or --prefix FOLDER
  guide     the guide: its blocks and links checked, rendered into target/guide
  setup     .venv with the Python packages that the other commands need
  ci        what CI runs: setup --with ci, lint, bench --check, test, a short fuzz
  help      this page

demo, doctor, test, setup and bench python take `--with NAMES`: Python packages to install first
and keep, such as jax, torch, pyarrow, tvm-ffi (requirements/ lists all), ci or full for many.
DLBRIDGE_PYTHON names the Python (3.10 or newer) for .venv; otherwise python3 is taken.
DLBRIDGE_FREE_THREADED_PYTHON names that one; otherwise python3.14t is taken, or one built.
DLBRIDGE_JULIA names the Julia (1.5 or newer); otherwise julia is taken, or one unpacked.
";

/// Whether there is such a command.
pub(crate) fn knows(command: &str) -> bool {
    let names = TEXT.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty()).any(|name| name == command)
}

/// Prints the overview.
pub(crate) fn run() -> Result {
    print!("{TEXT}");
    Ok(())
}
