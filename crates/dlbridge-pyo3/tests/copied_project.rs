//! The project that `cargo xtask new ../my-extension` starts builds outside this repository, and passes its tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

const PROJECT: &str = "examples/new-extension";
const FILES: [&str; 4] =
    ["Cargo.toml", "pyproject.toml", "src/lib.rs", "tests/test_my_extension.py"];

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

/// A copy of the project in a folder of its own, built with the crates as they are here.
fn copied(name: &str) -> PathBuf {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
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
    copy
}

/// The folder of this build, whose results serve the copies.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the folder of this build")
}

/// The copies have one name, and so has what they build.
static BUILD: Mutex<()> = Mutex::new(());

fn python() -> String {
    std::env::var("PYO3_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

#[test]
fn a_new_project_builds_and_passes_its_tests() {
    let copy = copied("copied_project");
    let building = BUILD.lock();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--offline"]).current_dir(&copy);
    let output = cargo.env("CARGO_TARGET_DIR", target()).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let python = python();
    if cfg!(not(target_os = "linux"))
        || !succeeds(Command::new(&python).args(["-c", "import pytest, numpy"]))
    {
        println!("skipped: no Linux, or {python} has no pytest");
        return;
    }
    let built = target().join("debug/libmy_extension.so");
    fs::copy(built, copy.join("my_extension.abi3.so")).expect("a copy");
    drop(building);
    let tests = copy.join("tests/test_my_extension.py");
    let output = Command::new(python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir"])
        .args([&copy, &tests])
        .env("PYTHONPATH", &copy)
        .output()
        .expect("pytest");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Whoever writes an extension switches between the two: each built three crates again, 38 to 64 s.
#[test]
fn a_check_after_maturin_builds_nothing_again() {
    let python = python();
    if !succeeds(Command::new(&python).args(["-P", "-m", "maturin", "--version"])) {
        println!("skipped: {python} has no maturin");
        return;
    }
    let copy = copied("checked_project");
    let _building = BUILD.lock();
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&copy).env("CARGO_TARGET_DIR", target());
        let output = command.env("CARGO_NET_OFFLINE", "true").output().expect("a program");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words}");
        words
    };
    run(env!("CARGO"), &["check"]);
    let build = ["-P", "-m", "maturin", "build", "--profile", "dev", "--out", "wheels"];
    run(&python, &build);
    let words = run(env!("CARGO"), &["check"]);
    assert!(!words.contains("Checking") && !words.contains("Compiling"), "{words}");
    let words = run(&python, &build);
    assert!(!words.contains("Compiling pyo3"), "{words}");
}

/// The pages whose examples are for extensions.
const PAGES: [&str; 8] = [
    "README.md",
    "docs/guide/README.md",
    "docs/guide/extension.md",
    "docs/guide/class.md",
    "docs/guide/coming-from.md",
    "docs/guide/gpu.md",
    "docs/guide/operators.md",
    "docs/guide/soundness.md",
];

/// The blocks of a page that define functions of Python or operators: the part before Python calls them, without the
/// imports that readers do not see.
fn blocks(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).expect("a page");
    let blocks = text.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
    let definitions = blocks.filter_map(|block| block.split("\n# Python::initialize();").next());
    let hidden = |line: &str| !line.starts_with("# use ") && line != "#";
    let lines = |text: &str| -> String {
        let lines = text.lines().filter(|line| hidden(line));
        lines.map(|line| format!("{}\n", line.strip_prefix("# ").unwrap_or(line))).collect()
    };
    let is_for_python =
        |block: &String| ["#[py", "operator! {"].iter().any(|it| block.contains(it));
    definitions.map(lines).filter(is_for_python).collect()
}

/// The guide's operator did not compile there, because the file imports `dlbridge_pyo3::Result`.
#[test]
fn every_block_of_the_guide_compiles_in_a_new_project() {
    let copy = copied("pasted_project");
    let source = fs::read_to_string(copy.join("src/lib.rs")).expect("a source");
    let imports = source.lines().map(str::trim).filter(|line| line.starts_with("use "));
    let imports: Vec<_> = imports.map(|line| format!("pub(crate) {line}")).collect();
    assert!(imports[0].ends_with("Result};"), "{imports:?}");
    // Each block has a `mod`, because two blocks may define one name; `super::*` are the imports of the file. The pages
    // that show an `unsafe impl` say that such a project does not forbid it.
    let mut text = format!("#![allow(unused)]\n\n{}\n", imports.join("\n"));
    let blocks: Vec<_> = PAGES.iter().flat_map(|page| blocks(page)).collect();
    assert!(blocks.len() >= 20, "{} blocks", blocks.len());
    for (number, block) in blocks.iter().enumerate() {
        text += &format!("\nmod block_{number} {{\nuse super::*;\n{block}}}\n");
    }
    fs::write(copy.join("src/lib.rs"), text).expect("a source");
    // With the features and crates that the pages name.
    let manifest = fs::read_to_string(copy.join("Cargo.toml")).expect("a manifest");
    let manifest = manifest.replace(
        "\ndlbridge = \"0.1\"\n",
        &format!(
            "\ndlbridge = {{ version = \"0.1\", features = [\"ndarray-0_17\", \"rayon\"] }}\n\
             dlbridge-operators = {{ path = '{}' }}\nndarray = \"0.17\"\nrayon = \"1\"\n",
            root().join("extras/operators").display()
        ),
    );
    fs::write(copy.join("Cargo.toml"), manifest).expect("a manifest");
    let _building = BUILD.lock();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["check", "--offline"]).current_dir(&copy).env("CARGO_TARGET_DIR", target());
    let output = cargo.output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// PyO3 lists the members of a module that is a `mod`.
const LISTED: &str = "
#[pyo3::pymodule]
mod my_extension {
    use dlbridge_pyo3::{CallerArray, PyTensor, PyTensorLike, PyTensorOf, Result};
    use pyo3::prelude::*;

    #[pyfunction]
    fn norm(x: PyTensorOf<f32, 1>) -> f32 {
        x.view().iter().map(|value| value * value).sum::<f32>().sqrt()
    }

    #[pyfunction]
    fn copied(x: PyTensorLike<f64>) -> Result<PyTensor> {
        Ok(x.to_contiguous()?.into())
    }

    #[pyfunction]
    fn doubled<'py>(x: CallerArray<'py, f32>) -> Result<Bound<'py, PyAny>> {
        x.to_caller(x.view().map_to_tensor(|value| 2.0 * value)?)
    }

    #[pyfunction]
    fn ndim(x: PyTensor) -> usize {
        x.ndim()
    }
}
";

#[test]
fn a_generated_stub_names_the_types_of_arguments_and_results() {
    let python = python();
    if !succeeds(Command::new(&python).args(["-P", "-m", "maturin", "generate-stubs", "--help"])) {
        println!("skipped: {python} has no maturin that generates stubs");
        return;
    }
    let copy = copied("listed_project");
    let _building = BUILD.lock();
    // With a feature of its own PyO3 has a build of its own: maturin sets other variables than these tests, whose PyO3
    // would be replaced.
    let features = "dlbridge-pyo3/experimental-inspect,pyo3/extension-module";
    fs::write(copy.join("src/lib.rs"), LISTED).expect("a source");
    let output = Command::new(&python)
        .args(["-P", "-m", "maturin", "generate-stubs", "--out", "stubs", "--profile", "dev"])
        .args(["--interpreter", &python, "--features", features])
        .current_dir(&copy)
        .env("CARGO_TARGET_DIR", target())
        .env("CARGO_NET_OFFLINE", "true")
        .output()
        .expect("maturin");
    let words = String::from_utf8_lossy(&output.stderr);
    if words.contains("Failed to parse introspection chunk") {
        println!("skipped: maturin does not read what this PyO3 writes");
        return;
    }
    assert!(output.status.success(), "{words}");
    let stub = copy.join("stubs/my_extension/__init__.pyi");
    let stub = fs::read_to_string(stub).expect("a stub");
    if stub.contains("norm(x: Incomplete)") {
        println!("skipped: this PyO3 has no types for arguments");
        return;
    }
    for line in [
        "def copied(x: ArrayLike) -> Tensor: ...",
        "def doubled(x: SupportsDLPack | Buffer) -> Any: ...",
        "def norm(x: SupportsDLPack | Buffer) -> float: ...",
        "def ndim(x: SupportsDLPack | Buffer) -> int: ...",
        "from dlbridge import SupportsDLPack, Tensor",
    ] {
        assert!(stub.contains(line), "{line}\n\n{stub}");
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
