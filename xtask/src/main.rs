//! `cargo xtask`: the project's own commands, each with `--help`.

mod arguments;
mod bench;
mod calls;
mod capi;
mod cross;
mod doctor;
mod fuzz;
mod guide;
mod house;
mod julia;
mod lint;
mod new;
mod outdated;
mod package;
mod python;
mod sanitize;
mod shell;
mod steps;
mod tally;
mod test;
mod workspace;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use xshell::cmd;

use crate::arguments::{Cli, Command, Part};
use crate::python::{Set, Venv};
use crate::steps::{Steps, skip};

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
        Command::Demo { with, args } => demo(&with.with, &args),
        Command::Test(options) => test::run(&options),
        Command::Lint(options) => lint::run(&options),
        Command::Sanitize(options) => sanitize::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Capi { prefix } => capi::run(prefix),
        Command::Guide => guide::run(),
        Command::Outdated => outdated::run(),
        Command::Package => package::run(),
        Command::Release { dry_run } => package::release(dry_run),
        Command::New { folder, operators } => new::run(&folder, operators),
        Command::Setup(with) => Venv::ready(&with.with).map(drop),
        Command::Ci { part: Some(Part::Install) } => Steps::run(install),
        Command::Ci { part: Some(Part::Others) } => Steps::run(|steps| {
            test::free_threaded_interpreter(steps)?;
            lint::oldest_rust(steps, lint::Adapters::Small)
        }),
        Command::Ci { part: None } => Steps::run(ci),
    }
}

/// What CI runs, on a machine with nothing but cargo and Python. A check that fails does not keep the
/// tests from running. Steps that wait for the network, or use one core, run at the same time as those that compile.
fn ci(steps: &mut Steps) -> Result<()> {
    let venv = Venv::ready(&lint::sets()?)?;
    steps.beside(&["ci", "--part", "others"])?;
    lint::quick(steps, &venv);
    steps.beside(&INSTALL)?;
    let linted = lint::compiled(steps, &venv);
    steps.wait(&INSTALL)?;
    // Counts of instructions do not depend on what else runs.
    steps.beside(&["bench", "--check"])?;
    steps.beside(&["test", "julia"])?;
    test::everything(steps).and(linted)
}

/// The part of [`ci`] that installs the Python packages of the tests.
const INSTALL: [&str; 3] = ["ci", "--part", "install"];

/// Installs the Python packages of the tests. Without one, its tests are skipped: `DLBRIDGE_REQUIRE=install` makes that fail.
fn install(steps: &mut Steps) -> Result<()> {
    let venv = Venv::ready(&[])?;
    for set in python::resolve(&[Set::named("ci")?])? {
        steps.step(&format!("install {}", set.name), || venv.install(&set).or_else(skip));
    }
    // Unpacked here, for the tests in Rust and those beside them.
    julia::find().ok();
    Ok(())
}

/// Shows arrays of the installed frameworks in Rust: its table is the last but for what to do next.
fn demo(with: &[Set], args: &[String]) -> Result<()> {
    let started = Instant::now();
    let step = |number, what: &str| {
        println!("step {number} of 3, after {:.0} s: {what}", started.elapsed().as_secs_f32());
    };
    step(1, ".venv with NumPy, and with what --with names");
    let venv = Venv::ready(with)?;
    step(2, "the Python package dlbridge, optimised (a minute or two at the first time)");
    venv.install_member("python", python::RELEASE)?;
    step(3, "arrays to Rust and back");
    cmd!(venv.sh, "python -m dlbridge.demo {args...}").quiet().run()?;
    println!(
        "\nnext: `cargo xtask demo --with torch,jax` adds PyTorch and JAX (several GB), `cargo xtask new ../my-extension` starts \
         an extension, docs/guide/README.md is the guide's first page"
    );
    Ok(())
}
