//! The project that `cargo xtask new ../my-extension` starts builds outside this repository, and passes its tests.

use std::fs;
use std::path::Path;
use std::process::Command;

const PROJECT: &str = "examples/new-extension";
const FILES: [&str; 3] = ["Cargo.toml", "src/lib.rs", "tests/test_my_extension.py"];

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

/// The manifest with the version of PyO3 that the lock file names: the project asks for the newest.
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
fn a_new_project_builds_and_passes_its_tests() {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("copied_project");
    for file in FILES {
        let target = copy.join(file);
        fs::create_dir_all(target.parent().expect("a folder")).expect("a folder");
        fs::copy(root().join(PROJECT).join(file), target).expect("a copy");
    }
    let manifest = fs::read_to_string(copy.join("Cargo.toml")).expect("a manifest");
    assert!(manifest.contains("[profile.wheel]"), "maturin builds with this profile");
    let manifest = for_locked_pyo3(&manifest) + &patch();
    fs::write(copy.join("Cargo.toml"), manifest).expect("a manifest");
    // The versions that are here already: no network is asked.
    fs::copy(root().join("Cargo.lock"), copy.join("Cargo.lock")).expect("a copy");

    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--offline"]).current_dir(&copy);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the folder of this build");
    let output = cargo.env("CARGO_TARGET_DIR", target).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let python = std::env::var("PYO3_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    if cfg!(not(target_os = "linux"))
        || !succeeds(Command::new(&python).args(["-c", "import pytest, numpy"]))
    {
        println!("skipped: no Linux, or {python} has no pytest");
        return;
    }
    let built = target.join("debug/libmy_extension.so");
    fs::copy(built, copy.join("my_extension.abi3.so")).expect("a copy");
    let tests = copy.join("tests/test_my_extension.py");
    let output = Command::new(python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir"])
        .args([&copy, &tests])
        .env("PYTHONPATH", &copy)
        .output()
        .expect("pytest");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
