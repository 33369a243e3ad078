//! AddressSanitizer and LeakSanitizer over the Rust tests.
//! Python programs belong to `python`.

use super::{Tests, cargo, nightly};
use crate::command;
use crate::failure::Result;
use crate::rustup;
use crate::steps::Outcome;

/// Runs the tests of the crates that need no Python.
pub(crate) fn run() -> Result<Outcome> {
    let nightly = match nightly() {
        Ok(nightly) => nightly,
        Err(skipped) => return Ok(skipped),
    };
    let Tests { core, adapters } = Tests::find()?;
    let mut cargo = cargo(&nightly, &["test", "--lib", "--target", &rustup::host(Some(&nightly))?]);
    cargo
        .args(["--package", "dlbridge", "--all-features", "--no-fail-fast"])
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .env("ASAN_OPTIONS", "detect_leaks=1");
    for test in core.iter().chain(&adapters) {
        cargo.args(["--test", test]);
    }
    command::run(&mut cargo)?;
    Ok(Outcome::Done)
}
