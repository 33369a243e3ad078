//! The rules of the house that no other tool checks.
//! The rules themselves are in `rules`; which files they see is decided here.

mod evidence;
mod features;
mod notes;
mod rules;

use std::path::Path;

use crate::failure::{Failure, Result};
use crate::manifest;
use crate::project;
use crate::steps::Outcome;

/// Written by tools, so not ours to keep to rules.
const GENERATED: &[&str] = &["Cargo.lock", "Manifest.toml"];

/// Where the numbers stand that SAFETY notes cite.
const SAFETY: &str = "SAFETY.md";
/// What has tables whose rows name tests.
const WITH_EVIDENCE: &[&str] = &[SAFETY, "docs/hostile.md"];

/// Checks every file that git tracks or would track.
pub(crate) fn check_files() -> Result {
    let listed_numbers = notes::listed(&project::read(&project::path(SAFETY))?);
    let mut findings = Vec::new();
    let mut cited = Vec::new();
    for name in project::files()?.iter().filter(|name| !is_generated(name)) {
        // Pictures are no text, and a file that was just removed may still be listed.
        let Ok(text) = std::fs::read_to_string(project::path(name)) else { continue };
        findings.extend(rules::check(name, &text));
        findings.extend(notes::check(name, &text, &listed_numbers));
        if WITH_EVIDENCE.contains(&name.as_str()) {
            let read = |path: &str| std::fs::read_to_string(project::path(path)).ok();
            findings.extend(evidence::check(name, &text, read));
        }
        if name.starts_with("crates/") {
            cited.extend(notes::numbers(&text).into_iter().map(str::to_owned));
        }
    }
    let idle = listed_numbers.iter().filter(|number| !cited.contains(number));
    findings.extend(idle.map(|number| format!("{SAFETY}: nothing in crates/ cites {number}")));
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

/// Prints what was found, if anything was.
pub(crate) fn report(findings: &[String]) -> Result {
    for finding in findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        number => Err(Failure::new(format!("{number} found"))),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_project_keeps_the_rules() {
        super::check_files().unwrap_or_else(|failure| panic!("{}", failure.message()));
    }
}
