//! The Rust in use, and the toolchains that rustup has installed already.
//! Invariant: none is fetched from here; that is the user's decision.

use crate::command;
use crate::failure::{Failure, Result};

/// The installed toolchain of a channel or version, such as `nightly` or `1.85`.
pub(crate) fn toolchain(version: &str) -> Option<String> {
    let list = command::output(command::program("rustup").args(["toolchain", "list"])).ok()?;
    find(&list, version)
}

/// The version of the compiler that cargo uses, such as `1.95.0`.
///
/// # Errors
///
/// Where rustc does not start.
pub(crate) fn current() -> Result<String> {
    let text = command::output(command::program("rustc").arg("--version"))?;
    Ok(text.split_whitespace().nth(1).unwrap_or_default().to_owned())
}

/// The target that a toolchain, or the compiler that cargo uses, runs on.
///
/// # Errors
///
/// Where rustc does not start or does not tell.
pub(crate) fn host(toolchain: Option<&str>) -> Result<String> {
    let mut rustc = match toolchain {
        Some(toolchain) => {
            let mut rustup = command::program("rustup");
            rustup.args(["run", toolchain, "rustc"]);
            rustup
        }
        None => command::program("rustc"),
    };
    let answers = command::output(rustc.arg("-vV"))?;
    let host = answers.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::new("rustc does not tell its host"))
}

fn find(list: &str, version: &str) -> Option<String> {
    let is_version = |name: &&str| {
        let rest = name.strip_prefix(version);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    };
    let mut names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn a_toolchain_is_found_by_its_version() {
        let list = "stable-x86_64-unknown-linux-gnu (default)\n1.85.1-x86_64-unknown-linux-gnu\n";
        assert_eq!(find(list, "1.85").unwrap(), "1.85.1-x86_64-unknown-linux-gnu");
        assert_eq!(find("1.85-x86_64\n", "1.85").unwrap(), "1.85-x86_64");
        assert_eq!(find("1.850.0-x86_64\nnightly\n", "1.85"), None);
    }
}
