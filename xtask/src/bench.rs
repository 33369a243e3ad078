//! `cargo xtask bench`: prepares the environment and the program in Rust; `benches/` measures, and
//! makes tables and charts.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
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
    #[arg(long)]
    write: bool,
    /// Print which paths in Python take 2 % more instructions than the last row of
    /// benches/python/counts.txt says, and fail at 5 %
    #[arg(long)]
    check: bool,
    /// Leave other Python libraries out
    #[arg(long)]
    quick: bool,
    /// Write all numbers of the paths in Python to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure with another Python, such as a free-threaded one
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// What to measure; default: all
    #[arg(value_parser = SUITES)]
    suite: Option<String>,
    /// A part of it: shares, views, reads, sizes or threads in Rust; paths, sizes, copies or threads in Python
    part: Option<String>,
}

const SUITES: [&str; 6] = ["rust", "python", "calls", "operators", "processes", "julia"];

/// Runs the measurements of one language, or of all.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (write, part) = (options.write.then_some("--write"), options.part.as_deref());
    Steps::run(|steps| {
        let venv = match &options.python {
            Some(path) => Venv::apart("bench-venv", path)?,
            None => Venv::ready(&options.with.with)?,
        };
        if options.check {
            if write.is_some() {
                install(&venv, steps)?;
            }
            steps.step("instructions", || check(&venv, options.write));
            return Ok(());
        }
        if write.is_some() || !options.quick {
            install(&venv, steps)?;
        }
        for suite in SUITES.iter().filter(|it| options.suite.as_ref().is_none_or(|one| one == *it))
        {
            steps.step(&format!("measure: {suite}"), || match *suite {
                "rust" => rust(&venv, part, write),
                "python" => in_python(&venv, options, write),
                "calls" | "operators" => {
                    Ok(cmd!(venv.sh, "python benches {write...} {suite}").run()?)
                }
                "processes" => in_processes(&venv, write),
                _ => in_julia(&venv, write),
            });
        }
        Ok(())
    })
}

fn in_python(venv: &Venv, options: &Options, write: Option<&str>) -> Result<()> {
    let quick = options.quick.then_some("--quick");
    let json = options.json.iter().map(|file| format!("--json={}", file.display()));
    // A Python without a shared library would be linked into the modules.
    let is_apart = options.python.is_some().then_some(("PYO3_BUILD_EXTENSION_MODULE", "1"));
    let part = &options.part;
    if options.python.is_none() && part.as_ref().is_none_or(|part| part == "copies") {
        venv.install_member("python", RELEASE)?;
    }
    let measure = cmd!(venv.sh, "python benches {write...} python {part...} {quick...} {json...}");
    Ok(measure.env("CARGO_TARGET_DIR", &venv.target).envs(is_apart).run()?)
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
