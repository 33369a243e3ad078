//! Whether the public API keeps what the last release promised, by `cargo-semver-checks`.
//! Invariant: without a release, or without the tool, the check is skipped with the reason.

use crate::command;
use crate::failure::Result;
use crate::steps::Outcome;
use crate::venv::Venv;

/// The crates whose public API is Rust's. That of the C API is a header, which has its own test.
const PACKAGES: [&str; 3] = ["dlbridge-sys", "dlbridge", "dlbridge-pyo3"];
/// How releases are tagged: `v1.2.3`.
const TAGS: &str = "v[0-9]*";

/// Compares with the last release, or tells why that cannot be done here.
pub(crate) fn check(venv: &Venv) -> Result<Outcome> {
    let Some(release) = last_release() else {
        return Ok(Outcome::Skipped("there is no release yet, or no tag of one here".to_owned()));
    };
    if !command::succeeds(command::program("cargo").args(["semver-checks", "--version"])) {
        let reason = format!(
            "no tool to compare with {release}: cargo install cargo-semver-checks --locked"
        );
        return Ok(Outcome::Skipped(reason));
    }
    let mut check = venv.program("cargo");
    check.args(["semver-checks", "--baseline-rev", &release]);
    for package in PACKAGES {
        check.args(["--package", package]);
    }
    command::run(&mut check)?;
    Ok(Outcome::Done)
}

/// The tag of the newest release among the ancestors of what is checked out.
fn last_release() -> Option<String> {
    let mut git = command::program("git");
    git.args(["describe", "--tags", "--abbrev=0", "--match", TAGS]);
    let tag = command::output(&mut git).ok()?;
    Some(tag.trim().to_owned()).filter(|tag| !tag.is_empty())
}
