//! The libraries with the oldest dependencies that their manifests allow.
//! The oldest compiler belongs to `commands::msrv`.
//! Invariant: the lock file of this folder is left alone: all is done in a copy.

use std::fs;
use std::path::Path;

use crate::command;
use crate::failure::{Failure, Result};
use crate::manifest;
use crate::project;
use crate::rustup;
use crate::steps::Outcome;
use crate::venv::Venv;

/// The toolchain whose cargo can choose the oldest versions. What it chose is built by the usual one.
const NIGHTLY: &str = "nightly";

/// Checks the libraries, or tells why that cannot be done here.
pub(crate) fn check(venv: &Venv) -> Result<Outcome> {
    let Some(nightly) = rustup::toolchain(NIGHTLY) else {
        let reason = "no nightly Rust, whose cargo alone chooses the oldest versions: \
                      rustup toolchain install nightly";
        return Ok(Outcome::Skipped(reason.to_owned()));
    };
    let folder = project::target_folder()?.join("minimal-versions");
    let copy = folder.join("source");
    copy_sources(&copy)?;
    let mut update = command::program("rustup");
    update.args(["run", &nightly, "cargo", "update", "--quiet", "-Zdirect-minimal-versions"]);
    command::run(update.current_dir(&copy))?;
    let mut cargo = venv.program("cargo");
    cargo.args(["check", "--lib", "--all-features", "--target-dir"]).arg(folder.join("target"));
    for library in manifest::libraries()? {
        cargo.args(["--package", library.name()?]);
    }
    command::run(cargo.current_dir(&copy))?;
    Ok(Outcome::Done)
}

/// Copies what git tracks or would track. Unchanged files keep their time, so that cargo does not
/// build them anew.
fn copy_sources(to: &Path) -> Result {
    for name in &project::files()? {
        // One that was just removed may still be listed.
        let Ok(text) = fs::read(project::path(name)) else { continue };
        let place = to.join(name);
        if fs::read(&place).is_ok_and(|copied| copied == text) {
            continue;
        }
        project::write(&place, text)?;
    }
    remove_gone(to, Path::new(""))?;
    // What `update` wrote the last time is no start for the next.
    let lock = to.join("Cargo.lock");
    fs::copy(project::path("Cargo.lock"), &lock)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", lock.display())))?;
    Ok(())
}

/// Removes from a folder of the copy what the project has no longer: a module that was moved would
/// stand there twice.
fn remove_gone(copy: &Path, folder: &Path) -> Result {
    for entry in fs::read_dir(copy.join(folder)).into_iter().flatten().flatten() {
        let name = folder.join(entry.file_name());
        if entry.path().is_dir() {
            remove_gone(copy, &name)?;
        } else if !project::root().join(&name).exists() {
            fs::remove_file(entry.path()).map_err(|error| {
                Failure::new(format!("cannot remove {}: {error}", entry.path().display()))
            })?;
        }
    }
    Ok(())
}
