//! The example project builds outside this repository, with the manifest that the guide shows.
//! What it does belongs to `python/tests/test_extension.py`.

use std::fs;
use std::path::Path;
use std::process::Command;

const PROJECT: &str = "examples/python-extension";
const PAGE: &str = "docs/guide/extension.md";

/// In place of a registry: the crates as they are here. With the profile of this workspace, what it has
/// built of other crates serves the copy.
fn patch() -> String {
    let line = |name: &str| {
        format!("{name} = {{ path = '{}' }}\n", root().join("crates").join(name).display())
    };
    let names = ["dlbridge", "dlbridge-pyo3", "dlbridge-sys"];
    let names = names.map(line).concat();
    format!(
        "\n[workspace]\n\n[patch.crates-io]\n{names}\n[profile.dev]\ndebug = \"line-tables-only\"\n\n\
         [profile.dev.package.\"*\"]\ndebug = false\n"
    )
}

/// The manifest with the version of PyO3 that the lock file names: the guide shows the newest.
fn for_locked_pyo3(manifest: &str) -> String {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("the lock file");
    let (_, rest) = lock.split_once("name = \"pyo3\"\nversion = \"0.").expect("it names PyO3");
    let minor: u32 = rest.split('.').next().and_then(|n| n.parse().ok()).expect("a version");
    assert!(manifest.contains("pyo3 = { version = \"0.30\""), "the newest version");
    let manifest = manifest.replace("version = \"0.30\"", &format!("version = \"0.{minor}\""));
    if minor < 29 { manifest.replace(", \"abi3t-py315\"", "") } else { manifest }
}

fn root() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.nth(2).expect("the crate lies two folders deep")
}

#[test]
fn the_example_builds_with_the_guides_manifest() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page");
    let (_, manifest) = page.split_once("```toml\n[package]").expect("the page has a manifest");
    let (manifest, _) = manifest.split_once("```").expect("it ends");

    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("copied_project");
    let sources = root().join(PROJECT).join("src");
    fs::create_dir_all(copy.join("src")).expect("a folder");
    for file in ["lib.rs", "gpu.rs", "image.rs"] {
        fs::copy(sources.join(file), copy.join("src").join(file)).expect("a copy");
    }
    assert!(manifest.contains("[profile.wheel]"), "maturin builds with this profile");
    let manifest = for_locked_pyo3(manifest);
    let manifest = format!("[package]{manifest}{}", patch());
    fs::write(copy.join("Cargo.toml"), manifest).expect("a manifest");
    // The versions that are here already: no network is asked.
    fs::copy(root().join("Cargo.lock"), copy.join("Cargo.lock")).expect("a copy");

    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["check", "--offline"]).current_dir(&copy);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the folder of this build");
    let output = cargo.env("CARGO_TARGET_DIR", target).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
