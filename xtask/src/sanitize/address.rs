//! AddressSanitizer and LeakSanitizer over the Rust tests.
//! Python programs belong to `python`.

use super::{CORE_FEATURES, Tests, cargo, nightly};
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
    let host = rustup::host(Some(&nightly))?;
    // The adapters' crates take long to build, so the core does not wait for them.
    let parts = [(&core, ["--features", CORE_FEATURES]), (&adapters, ["--lib", "--all-features"])];
    for (tests, features) in parts {
        let mut cargo = cargo(&nightly, &["test", "--package", "dlbridge", "--target", &host]);
        cargo.arg("--no-fail-fast").args(features);
        for test in tests {
            cargo.args(["--test", test]);
        }
        cargo.env("RUSTFLAGS", "-Zsanitizer=address").env("ASAN_OPTIONS", "detect_leaks=1");
        command::run(&mut cargo)?;
    }
    Ok(Outcome::Done)
}
