//! What cargo and rustup know: the members of the workspace, their features, the compilers.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xshell::{Cmd, Shell, cmd};

use crate::shell::{LIBRARIES, files, root, shell, succeeds, target};

/// The crate whose features are the adapters.
const MAIN_CRATE: &str = "dlbridge";
/// Its features that the tests of the core need.
pub(crate) const CORE_FEATURES: &str = "half-2,num-complex-0_4";

/// The same with an adapter, for a command that tests other packages as well.
pub(crate) fn core_features() -> String {
    format!("dlbridge/{CORE_FEATURES},ndarray-0_17").replace(',', ",dlbridge/")
}

/// A member of the workspace, as `cargo metadata` describes it.
pub(crate) struct Member(Value);

impl Member {
    /// A field that is a text, such as `name`, `version` or `rust_version`.
    pub(crate) fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.text("name")
    }

    /// Its folder, relative to the root.
    pub(crate) fn folder(&self) -> &str {
        let manifest = Path::new(self.text("manifest_path"));
        let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root()).ok());
        folder.and_then(Path::to_str).unwrap_or_default()
    }

    /// The features that a user can choose, without those that optional dependencies imply.
    pub(crate) fn features(&self) -> Vec<String> {
        let features = self.0["features"].as_object().into_iter().flatten();
        features.map(|(name, _)| name.clone()).filter(|name| name != "default").collect()
    }

    /// Those of them that build with a version of Rust. `package.metadata.newer-rust` lists the
    /// ones that need more than the workspace promises.
    pub(crate) fn features_for(&self, rust: &str) -> Vec<String> {
        let mut features = self.features();
        features.retain(|feature| {
            let needed = self.0["metadata"]["newer-rust"][&feature[..]].as_str();
            needed.is_none_or(|needed| minor(needed) <= minor(rust))
        });
        features
    }

    /// Name and requirement of each dependency.
    pub(crate) fn dependencies(&self) -> impl Iterator<Item = (&str, &str)> {
        let dependencies = self.0["dependencies"].as_array().into_iter().flatten();
        dependencies.filter_map(|one| Some((one["name"].as_str()?, one["req"].as_str()?)))
    }

    /// A published library, as opposed to a program, a wheel or an example.
    pub(crate) fn is_library(&self) -> bool {
        let is_published = self.0["publish"].as_array().is_none_or(|indexes| !indexes.is_empty());
        is_published && LIBRARIES.iter().any(|one| self.folder().starts_with(one))
    }

    /// Whether it has a library, in which doc tests are.
    pub(crate) fn has_library(&self) -> bool {
        let mut kinds = self.0["targets"].as_array().into_iter().flatten().map(|it| &it["doctest"]);
        kinds.any(|has_docs| has_docs == true)
    }

    /// Whether its tests and programs embed Python.
    pub(crate) fn embeds_python(&self) -> bool {
        self.dependencies().any(|(name, _)| matches!(name, "pyo3" | "dlbridge-pyo3"))
    }
}

/// All members of the workspace.
pub(crate) fn members() -> Result<Vec<Member>> {
    let sh = shell();
    let text = cmd!(sh, "cargo metadata --format-version 1 --no-deps --offline");
    let mut metadata: Value = serde_json::from_str(&text.quiet().read()?)?;
    let packages = metadata["packages"].as_array_mut().context("cargo metadata has no packages")?;
    Ok(std::mem::take(packages).into_iter().map(Member).collect())
}

/// The published libraries.
pub(crate) fn libraries() -> Result<Vec<Member>> {
    let mut members = members()?;
    members.retain(Member::is_library);
    Ok(members)
}

/// The crate whose features are the adapters.
pub(crate) fn main_crate() -> Result<Member> {
    let mut members = members()?.into_iter();
    members.find(|member| member.name() == MAIN_CRATE).context("the workspace has no main crate")
}

/// The second number of a version of Rust, whose first has always been 1.
fn minor(version: &str) -> u32 {
    version.split('.').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The version of the compiler that cargo uses, such as `1.95.0`.
pub(crate) fn rust_version() -> Result<String> {
    let sh = shell();
    let text = cmd!(sh, "rustc --version").quiet().read()?;
    Ok(text.split_whitespace().nth(1).unwrap_or_default().to_owned())
}

/// The toolchain of a channel or version, such as `nightly` or `1.85`, if it is installed.
pub(crate) fn toolchain(version: &str) -> Option<String> {
    let sh = shell();
    succeeds(cmd!(sh, "rustup run {version} rustc --version")).then(|| version.to_owned())
}

/// The cargo of an installed toolchain, or the one in use.
pub(crate) fn cargo<'a>(sh: &'a Shell, toolchain: Option<&str>) -> Cmd<'a> {
    match toolchain {
        Some(name) => cmd!(sh, "rustup run {name} cargo"),
        None => cmd!(sh, "cargo"),
    }
}

/// Unpacks the oldest compiler that the project supports, for machines whose rustup has none, with the
/// standard libraries of other architectures.
pub(crate) fn unpack_rustc(version: &str, architectures: &[&str]) -> Result<PathBuf> {
    let (sh, folder) = (shell(), target().join("msrv"));
    cmd!(sh, "sh scripts/get-rust-msrv.sh {folder} {architectures...}").run()?;
    let rustc = folder.join("bin/rustc");
    let found = cmd!(sh, "{rustc} --version").quiet().read()?;
    let is_right = found.starts_with(&format!("rustc {version}."));
    ensure!(is_right, "expected Rust {version}, found {found}");
    Ok(rustc)
}

/// Copies the sources to a folder, so that another lock file can be tried there: without the feature that PyO3
/// has from 0.29 on.
pub(crate) fn copy(sh: &Shell, folder: &Path) -> Result<()> {
    sh.remove_path(folder)?;
    sh.create_dir(folder)?;
    // With its old time, an unchanged file is not built anew.
    let packed = cmd!(sh, "tar -cf - -T -").stdin(files()?.join("\n")).quiet().output()?.stdout;
    cmd!(sh, "tar -xf - -C {folder}").stdin(packed).quiet().run()?;
    for name in files()?.iter().filter(|name| name.ends_with("Cargo.toml")) {
        let text = sh.read_file(folder.join(name))?;
        sh.write_file(folder.join(name), text.replace(", \"abi3t-py315\"", ""))?;
    }
    Ok(())
}

/// The target triple that the compiler runs on.
pub(crate) fn host() -> Result<String> {
    let sh = shell();
    Ok(cmd!(sh, "rustc --print host-tuple").quiet().read()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Member;

    #[test]
    fn features_need_a_rust_that_builds_them() {
        let member = Member(json!({
            "features": { "default": [], "old": [], "new": [] },
            "metadata": { "newer-rust": { "new": "1.88" } },
        }));
        assert_eq!(member.features_for("1.85"), ["old"]);
        assert_eq!(member.features_for("1.88.1").len(), 2);
    }
}
