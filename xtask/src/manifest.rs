//! What the workspace's `Cargo.toml` files say, read line by line.
//! Invariant: only what the project's own manifests use is understood, which is not all of TOML.

use std::fs;
use std::path::PathBuf;

use crate::failure::{Failure, Result};
use crate::project;

/// The crate whose features are the adapters.
pub(crate) const MAIN_CRATE: &str = "crates/dlbridge";
/// The Python package.
pub(crate) const WHEEL: &str = "python";
/// The example of a Python package, which tests use.
pub(crate) const EXAMPLE_WHEEL: &str = "examples/python-extension";

/// A member of the workspace.
#[derive(Debug)]
pub(crate) struct Member {
    /// Where it lies.
    pub(crate) folder: PathBuf,
    text: String,
}

impl Member {
    fn load(folder: PathBuf) -> Result<Self> {
        let text = project::read(&folder.join("Cargo.toml"))?;
        Ok(Self { folder, text })
    }

    /// The package's name.
    pub(crate) fn name(&self) -> Result<&str> {
        value(&self.text, "package", "name")
            .ok_or_else(|| Failure::new(format!("{} has no name", self.folder.display())))
    }

    /// The features that a user can choose, in the order of the manifest.
    pub(crate) fn features(&self) -> Vec<String> {
        let chosen = keys(&self.text, "features").into_iter().filter(|key| *key != "default");
        chosen.map(str::to_owned).collect()
    }

    /// Those of them whose crates build with a version of Rust, such as `1.85`. The manifest lists the
    /// ones that need a newer Rust than the workspace promises, each with the version.
    pub(crate) fn features_for_rust(&self, version: &str) -> Vec<String> {
        let builds = |feature: &String| {
            let needs = value(&self.text, "package.metadata.newer-rust", feature);
            needs.is_none_or(|needs| minor(needs) <= minor(version))
        };
        self.features().into_iter().filter(builds).collect()
    }

    /// Whether its tests and programs embed Python.
    pub(crate) fn embeds_python(&self) -> bool {
        let of_python = |key: &&str| matches!(*key, "pyo3" | "dlbridge-pyo3");
        ["dependencies", "dev-dependencies"]
            .iter()
            .any(|table| keys(&self.text, table).iter().any(of_python))
    }
}

/// The published libraries: everything in `crates/`.
pub(crate) fn libraries() -> Result<Vec<Member>> {
    let mut folders: Vec<_> = fs::read_dir(project::path("crates"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|folder| folder.join("Cargo.toml").is_file())
        .collect();
    folders.sort();
    folders.into_iter().map(Member::load).collect()
}

/// The members that need libpython to be tested.
pub(crate) fn embedding_python() -> Result<Vec<Member>> {
    let mut members = libraries()?;
    for wheel in [WHEEL, EXAMPLE_WHEEL] {
        members.push(Member::load(project::path(wheel))?);
    }
    members.retain(Member::embeds_python);
    Ok(members)
}

/// The features of [`MAIN_CRATE`] that a user can choose, in the order of its manifest.
pub(crate) fn features() -> Result<Vec<String>> {
    Ok(Member::load(project::path(MAIN_CRATE))?.features())
}

/// Those of them whose crates build with a version of Rust.
pub(crate) fn features_for_rust(version: &str) -> Result<Vec<String>> {
    Ok(Member::load(project::path(MAIN_CRATE))?.features_for_rust(version))
}

/// The second number of a version of Rust, whose first has always been 1.
fn minor(version: &str) -> u32 {
    version.split('.').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The oldest Rust that the workspace promises to build with.
pub(crate) fn oldest_rust() -> Result<String> {
    let text = project::read(&project::path("Cargo.toml"))?;
    value(&text, "workspace.package", "rust-version")
        .map(str::to_owned)
        .ok_or_else(|| Failure::new("Cargo.toml has no rust-version"))
}

/// The version of all members.
pub(crate) fn version() -> Result<String> {
    let text = project::read(&project::path("Cargo.toml"))?;
    value(&text, "workspace.package", "version")
        .map(str::to_owned)
        .ok_or_else(|| Failure::new("Cargo.toml has no version"))
}

/// The value of a key whose value is one string.
fn value<'a>(text: &'a str, table: &str, key: &str) -> Option<&'a str> {
    let entry = entries(text, table).into_iter().find(|(name, _)| *name == key)?;
    entry.1.split('"').nth(1)
}

/// The keys of a table, without quotes and what follows a dot.
fn keys<'a>(text: &'a str, table: &str) -> Vec<&'a str> {
    entries(text, table).into_iter().map(|(key, _)| key).collect()
}

/// Key and first line of the value for each entry of a table.
fn entries<'a>(text: &'a str, table: &str) -> Vec<(&'a str, &'a str)> {
    let header = format!("[{table}]");
    let lines = text.lines().skip_while(|line| line.trim() != header).skip(1);
    let mut open = 0;
    let mut entries = Vec::new();
    for line in lines.take_while(|line| !line.starts_with('[')) {
        if let (0, Some((key, value))) = (open, entry(line)) {
            entries.push((key, value));
        }
        open += unclosed(line);
    }
    entries
}

fn entry(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=').filter(|_| !line.trim_start().starts_with('#'))?;
    let key = match key.trim().strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => key.trim().split('.').next()?,
    };
    Some((key, value.trim()))
}

/// Brackets that a line opens and does not close, comments aside.
fn unclosed(line: &str) -> i32 {
    let code = line.split('#').next().unwrap_or_default();
    let count = |sign| i32::try_from(code.matches(sign).count()).unwrap_or(i32::MAX);
    count(['[', '{']) - count([']', '}'])
}

#[cfg(test)]
mod tests {
    use super::{Member, keys, value};

    const TEXT: &str = r#"
[package]
name = "some-crate"
version.workspace = true

[features]
default = []
## arrays = "both" ways
"ndarray-0_17" = [
    "dep:ndarray", # the crate
]
testing = []

[dependencies]
pyo3 = { workspace = true, features = ["abi3"] }
[dev-dependencies]
"#;

    #[test]
    fn features_are_the_keys_of_their_table() {
        assert_eq!(keys(TEXT, "features"), ["default", "ndarray-0_17", "testing"]);
        assert_eq!(keys(TEXT, "dev-dependencies"), [""; 0]);
    }

    #[test]
    fn strings_are_read() {
        assert_eq!(value(TEXT, "package", "name"), Some("some-crate"));
        assert_eq!(value(TEXT, "package", "rust-version"), None);
    }

    #[test]
    fn a_member_with_pyo3_embeds_python() {
        let member = |text: &str| Member { folder: "x".into(), text: text.to_owned() };
        assert!(member(TEXT).embeds_python());
        assert!(member("[dependencies]\ndlbridge-pyo3.workspace = true\n").embeds_python());
        assert!(!member("[dependencies]\nndarray = \"0.17\"\n").embeds_python());
    }
}
