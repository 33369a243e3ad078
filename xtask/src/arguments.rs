//! The arguments of every command. The commands themselves are files of their own.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::python::Set;
use crate::shell::{files_in, stem};

const VARIABLES: &str = "\
Variables of the environment:
  DLBRIDGE_PYTHON                the Python (3.11 or newer) for .venv; default: python3
  DLBRIDGE_JULIA                 the Julia (1.5 or newer); default: julia, or one is unpacked
  DLBRIDGE_WHEEL_PROFILE         the profile of the wheels that tests install; default: dev
  DLBRIDGE_REQUIRE               comma-separated names of steps that fail where they would be skipped";

/// The project's own commands. Each one sets up what it needs.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", max_term_width = 100, after_help = VARIABLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Python packages to install first.
#[derive(Debug, Args)]
pub(crate) struct With {
    /// Python packages to install first and keep, such as torch,jax; `ci` or `full` for many
    #[arg(long, global = true, value_name = "NAMES", value_delimiter = ',')]
    #[arg(value_parser = Set::load)]
    pub(crate) with: Vec<Set>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Share tensors with every installed framework, and check every value
    Demo {
        #[command(flatten)]
        with: With,
        /// Arguments for `python -m dlbridge.demo`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the tests: cargo test, pytest, Julia's, the examples
    Test(Test),
    /// Check formatting, clippy, features, docs, Python files, house rules, guide, oldest versions
    Lint(Lint),
    /// Run the tests under tools that find invalid accesses, leaks and races
    Sanitize(Sanitize),
    /// Compare the library with a model, on random and hostile input
    Fuzz(Fuzz),
    /// Check whether frameworks conform to the DLPack standard, and how fast they are
    Doctor(Doctor),
    /// Measure, in Rust, in Python, and in Julia where it is installed
    Bench(Bench),
    /// Build the C libraries, the header, and files for pkg-config and CMake
    Capi {
        /// The folder to install into; default: target/capi
        #[arg(long, value_name = "FOLDER")]
        prefix: Option<PathBuf>,
    },
    /// List dependencies that are newer than the manifests allow, and old pins of Python packages
    Outdated,
    /// Pack every crate and Python package, and use the packed files as a user does
    Package,
    /// Rehearse a release: does what package does, and dates the changelog
    Release {
        /// Print the changelog instead of writing it
        #[arg(long)]
        dry_run: bool,
    },
    /// Start a Python extension in a new folder, which uses the crates of this checkout
    New {
        /// The folder, whose name becomes the project's
        folder: PathBuf,
        /// Start from operators of PyTorch, JAX and NumPy
        #[arg(long)]
        operators: bool,
    },
    /// Check the guide's examples and links, and render it into target/guide, with a landing page
    Guide,
    /// Create .venv with the Python packages that the other commands need
    Setup(With),
    /// Run what CI runs: setup --with ci, lint, bench --check, test
    Ci {
        /// Only one of the parts that `ci` starts as processes of their own
        #[arg(long, hide = true)]
        part: Option<Part>,
    },
}

/// The steps of `ci` that have a process of their own.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Part {
    /// Installs what tests need, while lint compiles.
    Install,
    /// Another Python and another Rust, which build into folders of their own.
    Others,
}

/// Arguments of tests.
#[derive(Debug, Args)]
pub(crate) struct Test {
    #[command(flatten)]
    pub(crate) with: With,
    /// The core's tests in Rust and the Python tests that are not slow; takes a few minutes
    #[arg(long, conflicts_with = "with")]
    pub(crate) quick: bool,
    /// All tests, and every check that CI leaves out because of its time: before a release (an hour)
    #[arg(long, conflicts_with_all = ["quick", "suite"])]
    pub(crate) long: bool,
    /// Only what runs beside `--long`, because it builds into folders of its own
    #[arg(long, hide = true, requires = "long")]
    pub(crate) beside: bool,
    /// The tests to run; default: all but the long ones
    pub(crate) suite: Option<Suite>,
    /// Arguments for the suite's test runner
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
}

/// What `cargo xtask test` runs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Suite {
    /// Only cargo test
    Rust,
    /// Only pytest
    Python,
    /// pytest on a Python without the GIL
    FreeThreaded,
    /// pytest on Python 3.15, with the GIL and without, over one wheel
    Abi3t,
    /// The tests of `dlbridge-pyo3` with older versions of PyO3
    Pyo3,
    /// The tests of `dlbridge-operators` with the oldest PyTorch and JAX, and with the newest (several GB)
    Operators,
    /// The core's tests on aarch64, 32-bit x86 and big-endian s390x under QEMU, and on Windows under Wine
    Cross,
    /// Only the Julia package; arguments are files of its folder `test`
    Julia,
}

/// Arguments of checks.
#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// Only the libraries with the oldest Rust and the oldest dependencies that they support
    #[arg(long)]
    pub(crate) oldest: bool,
    /// Only what compiles nothing: formatting, Python files, house rules
    #[arg(long, conflicts_with = "oldest")]
    pub(crate) quick: bool,
}

/// Arguments of tests under tools.
#[derive(Debug, Args)]
pub(crate) struct Sanitize {
    /// AddressSanitizer over the Rust tests (address) or the Python tests (python), ThreadSanitizer
    /// over the tests with threads, valgrind, the table of borrows under loom, Miri; default: all
    #[arg(value_parser = ["address", "python", "thread", "valgrind", "loom", "miri"])]
    pub(crate) tool: Option<String>,
    /// How long Miri runs
    #[arg(long, default_value_t = 30)]
    pub(crate) minutes: u64,
}

/// Arguments of fuzzing.
#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// The targets to run; default: all
    #[arg(value_parser = target_name)]
    pub(crate) targets: Vec<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 20)]
    pub(crate) seconds: u64,
    /// The seed of the random inputs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Add inputs that reach new code to the corpus, and remove those that nothing needs
    #[arg(long)]
    pub(crate) keep: bool,
    /// Run under AddressSanitizer, with a nightly Rust
    #[arg(long)]
    pub(crate) asan: bool,
}

/// Arguments of the doctor.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) with: With,
    /// Install every framework first
    #[arg(long)]
    pub(crate) full: bool,
    /// Install every framework for the newest Python, and write target/doctor.md, .html and .json (several GB)
    #[arg(long)]
    pub(crate) report: bool,
    /// Arguments for `python -m dlpack_doctor`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
}

/// Arguments of measurements.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    pub(crate) with: With,
    /// Write the results to docs/benchmarks.md; with --check, to benches/python/counts.txt
    #[arg(long)]
    pub(crate) write: bool,
    /// Print which calls in Python take 2 % more instructions than benches/python/counts.txt says,
    /// and fail at 5 %
    #[arg(long)]
    pub(crate) check: bool,
    /// Leave out the other Python libraries
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure operators on this machine's GPU, beside C++; without one, they are only built
    #[arg(long)]
    pub(crate) gpu: bool,
    /// Measure with another Python, such as a free-threaded one
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
    /// What to measure; default: all
    #[arg(value_parser = SUITES)]
    pub(crate) suite: Option<String>,
    /// A part of the suite: shares, views or reads of rust; paths or copies of python
    pub(crate) part: Option<String>,
}

/// What `cargo xtask bench` measures.
pub(crate) const SUITES: [&str; 7] =
    ["rust", "python", "calls", "operators", "threads", "processes", "julia"];

/// The targets of `cargo xtask fuzz`.
pub(crate) fn targets() -> Vec<String> {
    files_in("fuzz/corpus", "txt").iter().map(|file| stem(file)).collect()
}

fn target_name(name: &str) -> Result<String, String> {
    let all = targets();
    let problem = || format!("expected one of {}", all.join(", "));
    all.iter().find(|known| *known == name).cloned().ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Cli, Command};

    #[test]
    fn arguments_after_ours_are_passed_on() {
        let words = "xtask doctor --with ci --full numpy --list --with".split(' ');
        let Command::Doctor(options) = Cli::parse_from(words).command else { panic!("another") };
        assert_eq!(options.args, ["numpy", "--list", "--with"]);
        assert!(Cli::try_parse_from(["xtask", "setup", "--with", "troch"]).is_err());
    }
}
