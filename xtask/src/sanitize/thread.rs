//! ThreadSanitizer over the tests in which threads share something: reference counts, deleters
//! that run elsewhere, queues, and what the C API publishes without a lock (`publish.rs`).
//! Other schedules and weaker memory belong to `miri`, which looks at the same tests.
//! Invariant: the standard library is built with the sanitizer, too: otherwise it would see races
//! that are none.

use super::{CORE_FEATURES, cargo, nightly, skipped};
use crate::command;
use crate::failure::Result;
use crate::project;
use crate::rustup;
use crate::steps::Outcome;

/// What is run of each package.
const TESTS: [&[&str]; 2] = [
    &[
        "--package",
        "dlbridge",
        "--features",
        CORE_FEATURES,
        "--test=threads",
        "--test=releases",
        "--test=ownership",
    ],
    &["--package", "dlbridge-capi", "--lib"],
];

/// Runs them.
pub(crate) fn run() -> Result<Outcome> {
    let nightly = match nightly() {
        Ok(nightly) => nightly,
        Err(skipped) => return Ok(skipped),
    };
    if !has_sources(&nightly)? {
        return Ok(skipped("no sources of std: rustup +nightly component add rust-src"));
    }
    let host = rustup::host(Some(&nightly))?;
    for tests in TESTS {
        let mut cargo = cargo(&nightly, &["test", "-Zbuild-std", "--target", &host]);
        cargo
            .args(tests)
            .arg("--target-dir")
            .arg(project::target_folder()?.join("sanitize-thread"));
        command::run(cargo.env("RUSTFLAGS", "-Zsanitizer=thread"))?;
    }
    Ok(Outcome::Done)
}

fn has_sources(toolchain: &str) -> Result<bool> {
    let mut rustc = command::program("rustup");
    let folder = command::output(rustc.args(["run", toolchain, "rustc", "--print=sysroot"]))?;
    let sources = std::path::Path::new(folder.trim()).join("lib/rustlib/src/rust/library");
    Ok(sources.is_dir())
}
