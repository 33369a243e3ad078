//! The rules of the house that no other tool checks.
//! The rules themselves are in `rules`; which files they see is decided here.

mod features;
mod rules;

use std::path::Path;

use crate::failure::{Failure, Result};
use crate::manifest;
use crate::project;
use crate::steps::Outcome;

/// Written by tools, so not ours to keep to rules.
const GENERATED: &[&str] = &["Cargo.lock", "Manifest.toml"];

/// Checks every file that git tracks or would track.
pub(crate) fn check_files() -> Result {
    let mut findings = Vec::new();
    for name in project::files()?.iter().filter(|name| !is_generated(name)) {
        // Pictures are no text, and a file that was just removed may still be listed.
        let Ok(text) = std::fs::read_to_string(project::path(name)) else { continue };
        findings.extend(rules::check(name, &text));
    }
    report(&findings)
}

/// Compares the table of features in the README with the manifest.
pub(crate) fn check_feature_table() -> Result<Outcome> {
    let readme = project::read(&project::path("README.md"))?;
    let Some(table) = features::table(&readme) else {
        return Ok(Outcome::Skipped("README.md has no table of features".to_owned()));
    };
    report(&features::differences(&table, &manifest::features()?))?;
    Ok(Outcome::Done)
}

fn is_generated(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|file| GENERATED.iter().any(|other| file == *other))
}

fn report(findings: &[String]) -> Result {
    for finding in findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        number => Err(Failure::new(format!("{number} found"))),
    }
}
