//! Tools that see wrong accesses to memory, leaks and races, and what each of them runs.
//! Choosing among the tools belongs to `commands::sanitize`.
//! Invariant: a tool that is not there is skipped with the reason, never taken for passed.

pub(crate) mod address;
pub(crate) mod miri;
pub(crate) mod python;
pub(crate) mod thread;
pub(crate) mod valgrind;

use std::process::Command;

use crate::command;
use crate::failure::{Failure, Result};
use crate::manifest::{self, MAIN_CRATE};
use crate::project;
use crate::rustup;
use crate::steps::Outcome;

/// The toolchain with the sanitizers.
const NIGHTLY: &str = "nightly";
/// Property tests are cut short by this many cases: everything is slower here.
const CASES: &str = "16";
/// These run a compiler, or read the docs: the tools have nothing to say about them.
const LEFT_OUT: [&str; 2] = ["ui", "adapters_table"];
/// What the tests of the main crate's core need.
const CORE_FEATURES: &str = "testing,half-2,num-complex-0_4";

/// The test programs of the main crate, each by name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tests {
    /// Those that need no adapter.
    core: Vec<String>,
    /// Those of one adapter each.
    adapters: Vec<String>,
}

impl Tests {
    fn find() -> Result<Self> {
        let files = project::files_in(&project::path(&format!("{MAIN_CRATE}/tests")), "rs");
        let names = files.iter().map(|file| project::stem(file));
        let tests = Self::of(names, &manifest::features()?);
        if tests.core.is_empty() {
            return Err(Failure::new("the main crate has no tests"));
        }
        Ok(tests)
    }

    /// A test belongs to an adapter if it has the name of its feature, or begins with that.
    fn of(names: impl Iterator<Item = String>, features: &[String]) -> Self {
        let is_adapters = |name: &String| {
            features.iter().any(|feature| name.starts_with(&feature.replace('-', "_")))
        };
        let names = names.filter(|name| !LEFT_OUT.contains(&&**name));
        let (adapters, core) = names.partition(is_adapters);
        Self { core, adapters }
    }
}

/// A toolchain's cargo, with few cases for property tests.
fn cargo(toolchain: &str, args: &[&str]) -> Command {
    let mut cargo = command::program("rustup");
    cargo.args(["run", toolchain, "cargo"]).args(args).env("PROPTEST_CASES", CASES);
    cargo
}

/// The nightly toolchain, if rustup has one.
fn nightly() -> std::result::Result<String, Outcome> {
    rustup::toolchain(NIGHTLY)
        .ok_or_else(|| skipped("no nightly Rust: rustup toolchain install nightly"))
}

fn skipped(reason: impl Into<String>) -> Outcome {
    Outcome::Skipped(reason.into())
}

#[cfg(test)]
mod tests {
    use super::Tests;

    #[test]
    fn tests_of_adapters_are_told_by_their_names() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let names = words("gate ndarray_0_17_views ui half burn_0_22 adapters_table");
        let tests = Tests::of(names.into_iter(), &words("ndarray-0_17 burn-0_22 half-2"));
        assert_eq!(tests.core, words("gate half"));
        assert_eq!(tests.adapters, words("ndarray_0_17_views burn_0_22"));
    }
}
