//! `cargo xtask bench`: prepares the environment and the program in Rust; `benches/` measures, and
//! makes tables and charts.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use xshell::cmd;

use crate::python::{RELEASE, Set, Venv, resolve};
use crate::shell::{lacks_valgrind, target};
use crate::steps::{Steps, skip};
use crate::{With, julia};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    with: With,
    /// Write the results, with charts, to docs/benchmarks.md; with --check, add the new counts
    #[arg(long, global = true)]
    write: bool,
    /// Print which paths in Python take 2 % more instructions than the last row of
    /// benches/python/counts.txt says, and fail at 5 %
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    suite: Option<Suite>,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Shares between Rust crates beside other libraries, loops over views, reads without T6, sizes, threads
    Rust {
        #[arg(value_parser = ["shares", "views", "reads", "sizes", "threads"])]
        part: Option<String>,
    },
    /// Instructions, allocations and time of each path, beside a floor in C and other libraries
    Python {
        #[arg(value_parser = ["paths", "sizes", "copies", "threads"])]
        part: Option<String>,
        /// Leave other libraries out
        #[arg(long)]
        quick: bool,
        /// Write all numbers of the paths to a file
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Measure with another Python, such as a free-threaded one
        #[arg(long, value_name = "PATH")]
        python: Option<PathBuf>,
    },
    /// Sealed tensors compared with other ways between two processes: opening, memory of readers, batches
    Processes,
    /// Shares with Python beside calls by hand
    Julia,
}

/// Runs the measurements of one language, or of all.
pub(crate) fn run(options: &Options) -> Result<()> {
    let write = options.write.then_some("--write");
    Steps::run(|steps| {
        let venv = Venv::ready(&options.with.with)?;
        if write.is_some() {
            install(&venv, steps)?;
        }
        if options.check {
            steps.step("instructions", || check(&venv, options.write));
            return Ok(());
        }
        let in_python = Suite::Python { part: None, quick: false, json: None, python: None };
        let all = [Suite::Rust { part: None }, in_python, Suite::Processes, Suite::Julia];
        for suite in options.suite.as_ref().map_or(&all[..], std::slice::from_ref) {
            match suite {
                Suite::Rust { part } => {
                    steps.step("measure in Rust", || rust(&venv, part.as_deref(), write));
                }
                Suite::Python { part, quick, json, python } => {
                    let other = python.as_ref().map(|path| Venv::apart("bench-venv", path));
                    let other = other.transpose()?;
                    let venv = other.as_ref().unwrap_or(&venv);
                    if !quick {
                        install(venv, steps)?;
                    }
                    let mut args: Vec<_> = part.iter().map(String::from).collect();
                    args.extend(quick.then(|| "--quick".to_owned()));
                    args.extend(json.iter().map(|file| format!("--json={}", file.display())));
                    // A Python without a shared library would be linked into the modules.
                    let is_apart = python.is_some().then_some(("PYO3_BUILD_EXTENSION_MODULE", "1"));
                    steps.step("measure in Python", || {
                        cmd!(venv.sh, "python benches {write...} python {args...}")
                            .env("CARGO_TARGET_DIR", &venv.target)
                            .envs(is_apart)
                            .run()
                            .map_err(Into::into)
                    });
                }
                Suite::Processes => {
                    install(&venv, steps)?;
                    steps.step("measure two processes", || in_processes(&venv, write));
                }
                Suite::Julia => steps.step("measure in Julia", || in_julia(&venv, write)),
            }
        }
        Ok(())
    })
}

/// Installs what charts and other libraries need.
fn install(venv: &Venv, steps: &mut Steps) -> Result<()> {
    for set in resolve(&[Set::named("bench")?, Set::named("tvm-ffi")?])? {
        steps.step(&format!("install {}", set.name), || venv.install(&set).or_else(skip));
    }
    Ok(())
}

/// Counts the instructions of the paths in Python, and compares with the checked-in counts, or
/// adds a row to them.
pub(crate) fn check(venv: &Venv, write: bool) -> Result<()> {
    let reason = lacks_valgrind(&venv.sh);
    if let Some(reason) = reason.or((!cfg!(target_os = "linux")).then_some("Linux only")) {
        return skip(reason);
    }
    let write = write.then_some("--write");
    Ok(cmd!(venv.sh, "python benches {write...} check").run()?)
}

/// Builds the program in Rust.
fn program(venv: &Venv, part: Option<&str>) -> Result<PathBuf> {
    let folder = target().join("bench-rust");
    // Only shares need other crates, which take minutes to build.
    let needs_crates = part.is_none_or(|part| part == "shares");
    let features = (!needs_crates).then_some("--no-default-features");
    let build = cmd!(venv.sh, "cargo build --release --locked --target-dir {folder} {features...}");
    build.args(["--manifest-path", "benches/rust/Cargo.toml"]).run()?;
    Ok(folder.join("release/dlbridge-bench-rust"))
}

fn in_processes(venv: &Venv, write: Option<&str>) -> Result<()> {
    if !cfg!(target_os = "linux") {
        return skip("sealed memory is for Linux");
    }
    venv.install_member("python", RELEASE)?;
    let program = program(venv, Some("processes"))?;
    Ok(cmd!(venv.sh, "python benches {write...} processes {program}").run()?)
}

fn rust(venv: &Venv, part: Option<&str>, write: Option<&str>) -> Result<()> {
    let program = program(venv, part)?;
    Ok(cmd!(venv.sh, "python benches {write...} rust {program} {part...}").run()?)
}

fn in_julia(venv: &Venv, write: Option<&str>) -> Result<()> {
    let lines = julia::bench(&julia::find()?, venv)?.read()?;
    if let Some(reason) = lines.strip_prefix("skipped\t") {
        return skip(reason.trim());
    }
    let file = target().join("bench/julia.tsv");
    venv.sh.write_file(&file, lines)?;
    Ok(cmd!(venv.sh, "python benches {write...} julia {file}").run()?)
}
