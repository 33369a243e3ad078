//! `cargo xtask`: the project's own commands, each with `--help`.

mod api;
mod bench;
mod capi;
mod cross;
mod doctor;
mod fuzz;
mod guide;
mod house;
mod julia;
mod lint;
mod package;
mod python;
mod sanitize;
mod shell;
mod steps;
mod test;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use xshell::cmd;

use crate::python::{Set, Venv};
use crate::steps::{Steps, skip};

const VARIABLES: &str = "\
Variables of the environment:
  DLBRIDGE_PYTHON                the Python (3.10 or newer) for .venv; default: python3
  DLBRIDGE_JULIA                 the Julia (1.5 or newer); default: julia, or one is unpacked
  DLBRIDGE_WHEEL_PROFILE         the profile of the wheels that tests install; default: dev
  DLBRIDGE_REQUIRE               names of steps, with commas between, that fail where they would be skipped";

/// The project's own commands. Each one sets up what it needs.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", max_term_width = 100, after_help = VARIABLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Python packages to install first.
#[derive(Debug, Args)]
pub(crate) struct With {
    /// Python packages to install first and keep, such as torch,jax; `ci` or `full` for many
    #[arg(long, global = true, value_name = "NAMES", value_delimiter = ',')]
    #[arg(value_parser = Set::load)]
    with: Vec<Set>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Share tensors between everything that is installed, and check every value
    Demo {
        #[command(flatten)]
        with: With,
        /// Arguments for `python -m dlbridge.demo`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the tests: cargo test, pytest, Julia's, the examples
    Test(test::Options),
    /// Check formatting, clippy, features, docs, Python files, house rules, guide, oldest versions
    Lint(lint::Options),
    /// Run the tests under tools that find invalid accesses, leaks and races
    Sanitize(sanitize::Options),
    /// Run hostile input against a model
    Fuzz(fuzz::Options),
    /// Check whether frameworks conform to the DLPack standard, and how fast they are
    Doctor(doctor::Options),
    /// Measure, in Rust, in Python, and in Julia where it is installed
    Bench(bench::Options),
    /// Build the C libraries, the header, and files for pkg-config and CMake
    Capi {
        /// The folder to install into; default: target/capi
        #[arg(long, value_name = "FOLDER")]
        prefix: Option<PathBuf>,
    },
    /// Pack every crate and Python package, and use the packed files as a user does
    Package,
    /// Rehearse a release: package, and the changelog
    Release {
        /// Print the changelog instead of writing it
        #[arg(long)]
        dry_run: bool,
    },
    /// Start a Python extension in a new folder, with these crates until they are published
    New {
        /// The folder, whose name becomes the project's
        folder: PathBuf,
        /// With operators of PyTorch, JAX and NumPy
        #[arg(long)]
        operators: bool,
    },
    /// List the public items of the libraries in docs/api.txt, which lint compares with the sources
    Api,
    /// Check the guide's examples and links, and render it into target/guide
    Guide,
    /// Make a static site in target/site: the guide, the crates' documentation, a landing page
    Site,
    /// Create .venv with the Python packages that the other commands need
    Setup(With),
    /// Run what CI runs: setup --with ci, lint, bench --check, test, a short fuzz
    Ci {
        /// Only the steps that build into folders of their own: `ci` runs them beside the others
        #[arg(long)]
        beside: bool,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let message = format!("{error:#}");
            if !message.is_empty() {
                eprintln!("error: {message}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Demo { with, args } => {
            let venv = Venv::ready(&with.with)?;
            venv.install_member("python", python::RELEASE)?;
            Ok(cmd!(venv.sh, "python -m dlbridge.demo {args...}").run()?)
        }
        Command::Test(options) => test::run(&options),
        Command::Lint(options) => lint::run(&options),
        Command::Sanitize(options) => sanitize::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Capi { prefix } => capi::run(prefix),
        Command::Guide => guide::print(guide::build),
        Command::Site => guide::print(guide::site),
        Command::Api => api::write(),
        Command::Package => package::run(),
        Command::Release { dry_run } => package::release(dry_run),
        Command::New { folder, operators } => {
            println!("next, in {}: maturin develop --profile dev", folder.display());
            package::new(&std::path::absolute(&folder)?, &shell::root().join("crates"), operators)
        }
        Command::Setup(with) => Venv::ready(&with.with).map(drop),
        Command::Ci { beside: true } => Steps::run(|steps| {
            test::beside(steps)?;
            fuzz::short(steps)?;
            lint::oldest(steps)
        }),
        Command::Ci { .. } => Steps::run(ci),
    }
}

/// What CI runs, on a machine with nothing but cargo and Python. A check that fails does not keep the
/// tests from running.
fn ci(steps: &mut Steps) -> Result<()> {
    let venv = Venv::ready(&[])?;
    for set in python::resolve(&[Set::named("ci")?])? {
        // Without the package, its tests are skipped: `DLBRIDGE_REQUIRE=install` makes that fail.
        steps.step(&format!("install {}", set.name), || venv.install(&set).or_else(skip));
    }
    // Unpacked here, for the tests in Rust and those beside them.
    julia::find().ok();
    let linted = lint::steps(steps, &["ci", "--beside"]);
    steps.step("instructions", || bench::check(&venv, false));
    test::everything(steps).and(linted)
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
