//! `cargo xtask outdated`: which dependency of a library has a newer version than the manifests allow, and which pin
//! of an installed Python package is old. It changes nothing.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value;
use xshell::cmd;

use crate::python::{PINS, Set, Venv};
use crate::shell::shell;
use crate::workspace::{self, Member};

/// Prints a line for each.
pub(crate) fn run() -> Result<()> {
    let (sh, venv, libraries) = (shell(), Venv::ready(&[])?, workspace::libraries()?);
    let direct: BTreeSet<_> = libraries.iter().flat_map(Member::dependencies).collect();
    let is_direct = |name: &str| direct.iter().any(|(one, _)| *one == name);
    let update = cmd!(sh, "cargo update --dry-run --verbose").read_stderr()?;
    let lock = sh.read_file("Cargo.lock")?;
    for (name, version, available) in update.lines().filter_map(newer) {
        // A crate whose older versions have adapters too has the newest in the lock file already.
        let number = available.split(',').next().unwrap_or_default();
        let entry = format!("name = \"{name}\"\nversion = \"{number}\"");
        if is_direct(name) && !lock.contains(&entry) {
            println!("{name} {version}: there is {available}");
        }
    }
    let listed = cmd!(venv.sh, "python -m pip list --outdated --format json").read()?;
    let listed: Vec<Value> = serde_json::from_str(&listed)?;
    for set in Set::all()? {
        for package in &listed {
            let text_of = |field: &str| package[field].as_str().unwrap_or_default();
            let is_it = |line: &str| plain(line.split("==").next().unwrap_or_default());
            let name = plain(text_of("name"));
            if set.pins().any(|line| is_it(line) == name) {
                let (old, new) = (text_of("version"), text_of("latest_version"));
                println!("{PINS}, {}: {name} {old}: there is {new}", set.name);
            }
        }
    }
    Ok(())
}

/// Name, version and what is available, of a line such as `Unchanged image v0.25.9 (available: v0.25.10)`.
fn newer(line: &str) -> Option<(&str, &str, &str)> {
    let (package, available) =
        line.trim().strip_prefix("Unchanged ")?.split_once(" (available: v")?;
    let (name, version) = package.split_once(" v")?;
    Some((name, version, available.strip_suffix(')')?))
}

/// A package's name as indexes compare it.
fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::newer;

    #[test]
    fn a_newer_version_is_read() {
        let line = "   Unchanged image v0.25.9 (available: v0.25.10, requires Rust 1.88.0)";
        assert_eq!(newer(line), Some(("image", "0.25.9", "0.25.10, requires Rust 1.88.0")));
        assert_eq!(newer("    Updating cc v1.11.1 -> v1.11.3"), None);
    }
}
