//! The Julia package: finding a Julia, and running programs of the package with it.
//! Building the library that the package loads belongs to `commands/capi`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::commands::capi;
use crate::counted::run_tests;
use crate::failure::{Failure, Result};
use crate::project;
use crate::tally::Tally;
use crate::venv::Venv;

/// The package.
const PACKAGE: &str = "julia/DLBridge";
/// Names the Julia to use; nothing else is tried then.
pub(crate) const CHOICE: &str = "DLBRIDGE_JULIA";
/// Unpacks a Julia where there is none.
const UNPACK: &str = "scripts/get-julia.sh";
/// The oldest Julia that the package supports.
const OLDEST: (u32, u32) = (1, 5);
/// The tests want a second thread, on which the collector runs.
const THREADS: &str = "2";

/// A Julia that was looked for.
#[derive(Debug)]
pub(crate) enum Julia {
    /// This program.
    Program(PathBuf),
    /// There is none, and why.
    Missing(String),
}

/// The Julia that the user chose, the `julia` on the search path if it is new enough, else one that
/// is unpacked here.
pub(crate) fn find() -> Result<Julia> {
    let chosen = env::var_os(CHOICE).filter(|value| !value.is_empty());
    let named = PathBuf::from(chosen.clone().unwrap_or_else(|| "julia".into()));
    if is_usable(&named) {
        return Ok(Julia::Program(named));
    }
    if chosen.is_some() {
        let (major, minor) = OLDEST;
        let wanted = format!("{CHOICE}={} is no Julia {major}.{minor} or newer", named.display());
        return Err(Failure::new(wanted));
    }
    let folder = project::target_folder()?.join("julia");
    let unpacked = command::run(command::program("sh").arg(UNPACK).arg(&folder));
    Ok(match unpacked {
        Ok(()) => Julia::Program(folder.join("bin/julia")),
        Err(failure) => {
            let reason = failure.message();
            Julia::Missing(format!("no julia on the search path, and none unpacked ({reason})"))
        }
    })
}

fn is_usable(program: &Path) -> bool {
    let version = command::output(command::program(program).arg("--version"));
    version.is_ok_and(|text| parse(&text).is_some_and(|version| version >= OLDEST))
}

/// Reads `julia version 1.5.3`.
fn parse(text: &str) -> Option<(u32, u32)> {
    let version = text.trim().strip_prefix("julia version ")?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Runs the package's tests, or those of some files.
pub(crate) fn test(julia: &Path, venv: &Venv, files: &[String], tally: &mut Tally) -> Result {
    let mut program = program(julia, venv)?;
    program.args(["-e", "using Pkg; Pkg.test(test_args = ARGS)"]).args(files);
    run_tests(&mut program, Tally::from_julia, tally)
}

/// Runs the package's measurements and gives what they print.
pub(crate) fn bench(julia: &Path, venv: &Venv) -> Result<String> {
    let script = project::path(PACKAGE).join("bench/bench.jl");
    command::output(program(julia, venv)?.arg(script))
}

/// A Julia that sees the package, the library and the environment's Python.
fn program(julia: &Path, venv: &Venv) -> Result<Command> {
    let library = capi::build()?;
    let mut program = venv.program(julia);
    program
        .arg("--startup-file=no")
        .arg(format!("--project={}", project::path(PACKAGE).display()))
        .env("DLBRIDGE_LIBRARY", library)
        .env("JULIA_NUM_THREADS", THREADS)
        // The package needs nothing that is not part of Julia.
        .env("JULIA_PKG_OFFLINE", "true");
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn versions_are_read() {
        assert_eq!(parse("julia version 1.5.3\n"), Some((1, 5)));
        assert_eq!(parse("julia version 1.12.0-rc1\n"), Some((1, 12)));
        assert_eq!(parse("no julia"), None);
    }
}
