//! `cargo xtask sanitize`: the Rust tests under tools that see wrong memory accesses and leaks.
//! Invariant: each tool ran or is listed as skipped with the reason.

use std::path::PathBuf;
use std::process::Command;

use crate::args::Args;
use crate::command;
use crate::failure::{Failure, Result};
use crate::rustup;
use crate::steps::{Outcome, Steps};

/// The crates with memory to get wrong and no Python in their tests.
const PACKAGES: [&str; 5] =
    ["--package", "dlbridge-sys", "--package", "dlbridge", "--all-features"];
/// Runs the compiler on what must not compile, which these tools say nothing about.
const LEFT_OUT: &str = "ui";
/// The toolchain with the sanitizers.
const NIGHTLY: &str = "nightly";
/// Property tests are cut short by this many cases: everything is slower here.
const CASES: &str = "16";

/// Runs every tool that there is.
pub(crate) fn run(args: Args) -> Result {
    args.finish()?;
    let mut steps = Steps::default();
    steps.step("AddressSanitizer", address_sanitizer);
    steps.step("Miri", miri);
    steps.step("valgrind", valgrind);
    steps.finish()
}

fn address_sanitizer() -> Result<Outcome> {
    let Some(nightly) = rustup::toolchain(NIGHTLY) else {
        return Ok(skipped("no nightly Rust: rustup toolchain install nightly"));
    };
    let host = host(&nightly)?;
    let mut cargo = cargo(&nightly, &["test", "--lib", "--tests", "--target", &host]);
    cargo.env("RUSTFLAGS", "-Zsanitizer=address").env("ASAN_OPTIONS", "detect_leaks=1");
    run_tests(&mut cargo)
}

/// Tree Borrows: a cell over memory that a Rust owner lent immutably is never written, which that
/// model allows and Stacked Borrows does not (`raw/elements.rs`).
const MIRI_FLAGS: &str = "-Zmiri-tree-borrows -Zmiri-strict-provenance -Zmiri-disable-isolation";

fn miri() -> Result<Outcome> {
    let found = rustup::toolchain(NIGHTLY)
        .filter(|nightly| command::succeeds(&mut cargo(nightly, &["miri", "--version"])));
    let Some(nightly) = found else {
        return Ok(skipped("no Miri: rustup +nightly component add miri"));
    };
    let mut cargo = cargo(&nightly, &["miri", "test", "--lib", "--tests"]);
    cargo.env("MIRIFLAGS", MIRI_FLAGS);
    run_tests(&mut cargo)
}

fn valgrind() -> Result<Outcome> {
    if !command::succeeds(command::program("valgrind").arg("--version")) {
        return Ok(skipped("no valgrind: install your system's package"));
    }
    for program in test_programs()? {
        let mut valgrind = command::program("valgrind");
        valgrind
            .args(["--quiet", "--error-exitcode=9", "--leak-check=full"])
            .args(["--errors-for-leak-kinds=definite,indirect"])
            .args(["--show-leak-kinds=definite,indirect"])
            .arg(program)
            .args(["--test-threads=1", "--exact", "--skip", LEFT_OUT])
            .env("PROPTEST_CASES", CASES);
        command::run(&mut valgrind)?;
    }
    Ok(Outcome::Done)
}

/// Builds the tests and gives their programs.
fn test_programs() -> Result<Vec<PathBuf>> {
    let mut cargo = command::program("cargo");
    cargo.args(["test", "--no-run", "--lib", "--tests", "--message-format=json"]).args(PACKAGES);
    println!("building the test programs");
    let messages = command::output(&mut cargo)?;
    let programs: Vec<_> = messages.lines().filter_map(executable).map(PathBuf::from).collect();
    if programs.is_empty() {
        return Err(Failure::new("cargo built no test program"));
    }
    Ok(programs)
}

/// The program that one of cargo's JSON messages is about.
fn executable(message: &str) -> Option<&str> {
    message.split_once("\"executable\":\"")?.1.split('"').next()
}

fn run_tests(cargo: &mut Command) -> Result<Outcome> {
    command::run(cargo.args(PACKAGES).args(["--", "--exact", "--skip", LEFT_OUT]))?;
    Ok(Outcome::Done)
}

fn skipped(reason: &str) -> Outcome {
    Outcome::Skipped(reason.to_owned())
}

/// A toolchain's cargo, with few cases for property tests.
fn cargo(toolchain: &str, args: &[&str]) -> Command {
    let mut cargo = command::program("rustup");
    cargo.args(["run", toolchain, "cargo"]).args(args).env("PROPTEST_CASES", CASES);
    cargo
}

/// The target that a toolchain runs on.
fn host(toolchain: &str) -> Result<String> {
    let mut rustc = command::program("rustup");
    let answers = command::output(rustc.args(["run", toolchain, "rustc", "-vV"]))?;
    let host = answers.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::new("rustc does not tell its host"))
}

#[cfg(test)]
mod tests {
    use super::executable;

    #[test]
    fn programs_are_found_in_messages() {
        let message = r#"{"reason":"compiler-artifact","executable":"target/x-1","fresh":true}"#;
        assert_eq!(executable(message), Some("target/x-1"));
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
    }
}
