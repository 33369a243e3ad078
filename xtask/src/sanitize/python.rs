//! The Python suite over a native module with AddressSanitizer; under valgrind where there is none.
//! Which tests a sanitizer can be asked about is decided here; the tests themselves are pytest's.
//! Invariant: the installed package is left as it is: the module lies in a folder of its own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{NIGHTLY, skipped, valgrind};
use crate::command;
use crate::commands::setup;
use crate::failure::{Failure, Result};
use crate::project;
use crate::rustup;
use crate::steps::Outcome;
use crate::venv::Venv;
use crate::wheel;

/// The tests of everything that holds memory, with NumPy alone.
const TESTS: &[&str] = &[
    "capsules",
    "hostile",
    "producers",
    "exchange_api",
    "negotiation",
    "create",
    "copy_and_device",
    "inspect",
    "buffer",
    "buffer_export",
    "array_interface",
    "cuda_array_interface",
    "host_memory",
    "lifetime",
    "numpy",
    "stream_order",
    "streams",
];
/// Those that valgrind, which is slower by far, is asked about.
const FEW_TESTS: &[&str] = &["capsules", "hostile"];
/// Tests that look at the process's size, which a sanitizer changes, and what lasts too long.
const NOT: &str = "not nothing_behind and not hundred_thousand and not exit";
/// Runs pytest without the frameworks: they are not built for sanitizers.
const PYTEST: &str = "\
import sys
for name in ('torch', 'jax', 'tensorflow', 'paddle', 'pyarrow', 'tvm_ffi', 'mlx', 'cupy', 'ml_dtypes', 'array_api_strict'):
    sys.modules[name] = None
import pytest
raise SystemExit(pytest.main(sys.argv[1:]))
";
/// How a leak's stack names our module.
const MODULE: &str = "_native";

/// Runs the tests with the better of the two tools.
pub(crate) fn run() -> Result<Outcome> {
    let venv = setup::ready(&[])?;
    match (rustup::toolchain(NIGHTLY), runtime()) {
        (Some(nightly), Some(runtime)) => address(&venv, &nightly, &runtime),
        _ if valgrind::exists() => under_valgrind(&venv),
        (None, _) => Ok(skipped("neither a nightly Rust nor valgrind")),
        (_, None) => Ok(skipped("neither the C compiler's libasan.so nor valgrind")),
    }
}

/// The sanitizer's runtime as a shared library, which is loaded before Python: Rust's own is linked
/// to programs only.
fn runtime() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let mut cc = command::program("cc");
    let answer = command::output(cc.arg("-print-file-name=libasan.so")).ok()?;
    // A compiler that has no such file gives the name back.
    let path = Path::new(answer.trim());
    path.is_absolute().then(|| path.to_owned())
}

fn address(venv: &Venv, nightly: &str, runtime: &Path) -> Result<Outcome> {
    let folder = project::target_folder()?.join("sanitize");
    let target = rustup::host(Some(nightly))?;
    let mut cargo = venv.program("rustup");
    cargo
        .args(["run", nightly, "cargo", "build", "--package", "dlbridge-python"])
        .args(["--target", &target, "--target-dir"])
        .arg(&folder)
        .env("RUSTFLAGS", "-Zsanitizer=address");
    command::run(&mut cargo)?;
    let package = folder.join("package");
    lay_out(&package, &folder.join(target).join("debug/lib_native.so"))?;
    let logs = folder.join("logs");
    let _ = fs::remove_dir_all(&logs);
    project::make_folder(&logs)?;
    let options =
        format!("detect_leaks=1:allocator_may_return_null=1:log_path={}/asan", logs.display());
    let mut python = venv.run_python();
    python
        .env("LD_PRELOAD", runtime)
        .env("ASAN_OPTIONS", options)
        // Python itself leaves things behind: what counts is in the logs.
        .env("LSAN_OPTIONS", "exitcode=0")
        .env("PYTHONPATH", &package);
    let tests = command::run(pytest(&mut python, TESTS));
    let findings = findings(&logs)?;
    for finding in &findings {
        println!("{finding}");
    }
    tests?;
    match findings.len() {
        0 => Ok(Outcome::Done),
        number => Err(Failure::new(format!("{number} found by AddressSanitizer"))),
    }
}

/// The Python files with a native module of ours beside them.
fn lay_out(package: &Path, module: &Path) -> Result {
    let _ = fs::remove_dir_all(package);
    copy_folder(&project::path("python/dlbridge"), &package.join("dlbridge"))?;
    let to = package.join("dlbridge/_native.abi3.so");
    fs::copy(module, &to).map_err(|error| cannot("write", &to, &error))?;
    Ok(())
}

/// Copies Python files alone: a module that lies there already is another.
fn copy_folder(from: &Path, to: &Path) -> Result {
    project::make_folder(to)?;
    let entries = fs::read_dir(from).map_err(|error| cannot("read", from, &error))?;
    for entry in entries.flatten() {
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &copy)?;
        } else if path.extension() == Some(OsStr::new("py")) {
            fs::copy(&path, &copy).map_err(|error| cannot("write", &copy, &error))?;
        }
    }
    Ok(())
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot {what} {}: {error}", path.display()))
}

/// What the logs say that is not Python's own: wrong accesses, and leaks of our module.
fn findings(logs: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(logs).map_err(|error| cannot("read", logs, &error))?;
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    Ok(texts.flat_map(|text| of_log(&text)).collect())
}

/// The findings of one log, whose parts are separated by empty lines.
fn of_log(text: &str) -> Vec<String> {
    if text.contains("ERROR: AddressSanitizer") {
        return vec![text.to_owned()];
    }
    let leaks = text.split("\n\n").filter(|part| part.contains(" leak of "));
    leaks.filter(|leak| leak.contains(MODULE)).map(str::to_owned).collect()
}

fn under_valgrind(venv: &Venv) -> Result<Outcome> {
    wheel::build_and_install(venv, crate::manifest::WHEEL)?;
    let mut valgrind = valgrind::valgrind();
    // Python reads what it has not written, in places that it knows of.
    valgrind.args(["--undef-value-errors=no", "--leak-check=no"]).arg(venv.python());
    command::run(pytest(&mut valgrind, FEW_TESTS))?;
    Ok(Outcome::Done)
}

fn pytest<'a>(program: &'a mut Command, tests: &[&str]) -> &'a mut Command {
    // Python's own allocator would hide what the tools look for.
    program.env("PYTHONMALLOC", "malloc").args(["-c", PYTEST, "-q", "-p", "no:cacheprovider"]);
    program.args(["-k", NOT]);
    program.args(tests.iter().map(|test| format!("python/tests/test_{test}.py")))
}

#[cfg(test)]
mod tests {
    use super::{TESTS, of_log};
    use crate::project;

    #[test]
    fn every_test_exists() {
        for test in TESTS {
            assert!(project::path(&format!("python/tests/test_{test}.py")).is_file(), "{test}");
        }
    }

    #[test]
    fn leaks_of_our_module_are_told_from_those_of_python() {
        let python = "Direct leak of 8 byte(s) in 1 object(s):\n  #0 malloc\n  #1 libpython3.so";
        let ours = "Direct leak of 8 byte(s) in 1 object(s):\n  #0 malloc\n  #1 _native.abi3.so";
        let log = format!("\n=\n\n{python}\n\n{ours}\n\nSUMMARY: 16 byte(s) leaked\n");
        assert_eq!(of_log(&log), [ours]);
        assert!(of_log(python).is_empty());
        assert_eq!(of_log("==1==ERROR: AddressSanitizer: heap-use-after-free").len(), 1);
    }
}
