//! valgrind over the Rust tests, as they are built for everybody.
//! Python programs belong to `python`.

use std::path::PathBuf;
use std::process::Command;

use super::{CASES, LEFT_OUT, skipped};
use crate::command;
use crate::failure::{Failure, Result};
use crate::steps::Outcome;

/// Runs the tests of the crates that need no Python.
pub(crate) fn run() -> Result<Outcome> {
    if !exists() {
        return Ok(skipped(MISSING));
    }
    let programs = test_programs()?;
    for (index, program) in programs.iter().enumerate() {
        println!("-- program {} of {}", index + 1, programs.len());
        let mut valgrind = valgrind();
        valgrind
            .args(["--leak-check=full", "--errors-for-leak-kinds=definite,indirect"])
            .arg("--show-leak-kinds=definite,indirect")
            .arg(program)
            .arg("--test-threads=1")
            .env("PROPTEST_CASES", CASES);
        command::run(&mut valgrind)?;
    }
    Ok(Outcome::Done)
}

/// Why there is no valgrind.
pub(super) const MISSING: &str = "no valgrind: install your system's package";

pub(super) fn exists() -> bool {
    command::succeeds(command::program("valgrind").arg("--version"))
}

/// A valgrind that says nothing unless something is wrong.
pub(super) fn valgrind() -> Command {
    let mut valgrind = command::program("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9"]);
    valgrind
}

/// Builds the tests and gives their programs.
fn test_programs() -> Result<Vec<PathBuf>> {
    let mut cargo = command::program("cargo");
    cargo.args(["test", "--no-run", "--lib", "--tests", "--message-format=json"]);
    cargo.args(["--package", "dlbridge-sys", "--package", "dlbridge", "--all-features"]);
    println!("building the test programs");
    let messages = command::output(&mut cargo)?;
    let programs = messages.lines().filter_map(executable).filter(|program| !is_left_out(program));
    let programs: Vec<_> = programs.map(PathBuf::from).collect();
    if programs.is_empty() {
        return Err(Failure::new("cargo built no test program"));
    }
    Ok(programs)
}

/// The program that one of cargo's JSON messages is about.
fn executable(message: &str) -> Option<&str> {
    message.split_once("\"executable\":\"")?.1.split('"').next()
}

/// Whether a program, whose name ends with a hash, is not to be run.
fn is_left_out(program: &str) -> bool {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
    let test = name.rsplit_once('-').map_or(name, |(test, _)| test);
    LEFT_OUT.contains(&test)
}

#[cfg(test)]
mod tests {
    use super::{executable, is_left_out};

    #[test]
    fn programs_are_found_in_messages() {
        let message = r#"{"reason":"compiler-artifact","executable":"target/x-1","fresh":true}"#;
        assert_eq!(executable(message), Some("target/x-1"));
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
    }

    #[test]
    fn programs_that_are_left_out_are_told_by_their_names() {
        assert!(is_left_out("target/debug/deps/ui-0a1b"));
        assert!(!is_left_out("target/debug/deps/guide-0a1b"));
    }
}
