//! The rules of the house that no other tool checks. The rules for one file are in `rules`, those for
//! SAFETY notes in `notes`, those for tables that name tests in `evidence`.

mod evidence;
mod notes;
mod rules;

use anyhow::{Result, bail};

use crate::shell::{files, root};
use crate::workspace;

/// Written by tools.
const GENERATED: [&str; 2] = ["Cargo.lock", "Manifest.toml"];
/// Lists the numbers that SAFETY notes cite.
const SAFETY: &str = "SAFETY.md";
/// Pages with tables whose rows name tests.
const WITH_EVIDENCE: [&str; 2] = [SAFETY, "docs/hostile.md"];

/// Checks every file that git tracks or would track.
pub(crate) fn check() -> Result<()> {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).ok();
    let listed = notes::listed(&read(SAFETY).unwrap_or_default());
    let (mut findings, mut cited) = (Vec::new(), Vec::new());
    for name in files()?.iter().filter(|name| !GENERATED.iter().any(|file| name.ends_with(file))) {
        // Pictures are no text.
        let Some(text) = read(name) else { continue };
        findings.extend(rules::check(name, &text));
        findings.extend(notes::check(name, &text, &listed));
        if WITH_EVIDENCE.contains(&&**name) {
            findings.extend(evidence::check(name, &text, read));
        }
        if name.starts_with("crates/") {
            cited.extend(notes::numbers(&text).into_iter().map(str::to_owned));
        }
    }
    let idle = listed.iter().filter(|number| !cited.contains(number));
    findings.extend(idle.map(|number| format!("{SAFETY}: nothing in crates/ cites {number}")));
    let readme = read("README.md").unwrap_or_default();
    findings.extend(feature_table(&readme, &workspace::main_crate()?.features()));
    report(&findings)
}

/// Prints the findings, and fails if there are any.
pub(crate) fn report(findings: &[String]) -> Result<()> {
    for finding in findings {
        println!("{finding}");
    }
    if findings.is_empty() { Ok(()) } else { bail!("{} findings", findings.len()) }
}

/// The differences between the features and the README's table of them: its first column is headed
/// `feature`, each cell in it is a feature's name in backticks. A README without the table has none.
fn feature_table(readme: &str, features: &[String]) -> Vec<String> {
    let cell = |line: &str| {
        Some(line.strip_prefix('|')?.split('|').next().unwrap_or_default().trim().to_owned())
    };
    let is_header =
        |line: &&str| cell(line).is_some_and(|cell| cell.eq_ignore_ascii_case("feature"));
    let rows = readme.lines().skip_while(|line| !is_header(line)).skip(2).map_while(cell);
    let names: Vec<_> = rows.map(|cell| cell.trim_matches('`').to_owned()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let missing = features.iter().filter(|feature| !names.contains(feature));
    let unknown = names.iter().filter(|name| !features.contains(name));
    missing
        .map(|name| format!("README.md: the table of features lacks `{name}`"))
        .chain(unknown.map(|name| format!("README.md: there is no feature `{name}`")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::feature_table;

    #[test]
    fn this_project_keeps_the_rules() {
        super::check().unwrap();
    }

    #[test]
    fn differences_from_the_table_of_features_are_found_both_ways() {
        let readme = "| command | what |\n| --- | --- |\n| `test` | tests |\n\n\
                      | Feature | adds |\n| --- | --- |\n| `a` | x |\n| `old` | y |\n\n| `c` | z |\n";
        let features = ["a", "new"].map(str::to_owned);
        let found = feature_table(readme, &features);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("`new`") && found[1].contains("`old`"));
        assert!(feature_table("no table", &features).is_empty());
    }
}
