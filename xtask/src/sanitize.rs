//! `cargo xtask sanitize`: the tests under tools that find invalid memory accesses, leaks and races.
//! Each tool runs, or is listed as skipped with the reason.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::arguments::Sanitize as Options;
use crate::capi;
use crate::python::Venv;
use crate::shell::{answer, files, lacks_valgrind, root, shell, succeeds, target};
use crate::steps::{Steps, skip};
use crate::workspace::{self, CORE_FEATURES};

/// Property tests are limited to so many cases, since everything is slower here;
const CASES: &str = "16";
/// under Miri, to even fewer.
const MIRI_CASES: &str = "4";
/// Tree Borrows: a cell over memory that a Rust owner exported as immutable is never written, which
/// that model allows and Stacked Borrows does not (`memory/read.rs`).
const MIRI_FLAGS: &str = "-Zmiri-tree-borrows -Zmiri-strict-provenance -Zmiri-disable-isolation";
/// What the C API publishes without a lock, under so many schedules of the threads as `miri` says.
const CAPI: &str = "--package dlbridge-capi --lib";
/// The files of the core's tests in which threads share tensors.
const THREADS: [&str; 3] = ["arc_tensor", "ownership", "releases"];
/// The Python tests of everything that holds memory, with NumPy as the only framework.
const PYTHON_TESTS: &str = "hostile producers exchange_api negotiation create \
    copy_and_device inspect buffer buffer_export array_interface cuda \
    lifetime numpy streams channel channel_sends reentry release classes operators threads";
/// Not those that measure the process's size or a stack, or use an address twice, which a sanitizer changes, or take too long.
const PYTHON_CHOICE: &str = "not nothing_behind and not twenty_thousand and not exit and not address and not constant_memory \
    and not imports_itself";
/// Runs pytest without the frameworks: they are not built for sanitizers.
const PYTEST: &str = "\
import sys
for name in ('torch', 'jax', 'tensorflow', 'paddle', 'pyarrow', 'tvm_ffi', 'mlx', 'cupy', 'ml_dtypes', 'array_api_strict'):
    sys.modules[name] = None
import pytest
raise SystemExit(pytest.main(sys.argv[1:]))
";

/// Runs every tool that is installed, or the given one.
pub(crate) fn run(options: &Options) -> Result<()> {
    let sh = shell();
    sh.set_var("PROPTEST_CASES", CASES);
    Steps::run(|steps| {
        let mut step = |name: &str, work: &dyn Fn() -> Result<()>| {
            if options.tool.as_ref().is_none_or(|chosen| chosen == name) {
                steps.step(name, work);
            }
        };
        step("address", &|| address(&sh));
        step("python", &python);
        step("thread", &|| thread(&sh));
        step("valgrind", &|| valgrind(&sh));
        step("loom", &|| loom(&sh));
        step("miri", &|| miri(&sh, Duration::from_secs(60 * options.minutes)));
        Ok(())
    })
}

/// The nightly toolchain.
fn nightly() -> Result<String> {
    let nightly = workspace::toolchain("nightly");
    nightly.map_or_else(|| skip("no nightly Rust: rustup toolchain install nightly"), Ok)
}

/// AddressSanitizer and LeakSanitizer over the tests of the main crate.
fn address(sh: &Shell) -> Result<()> {
    let (nightly, host) = (nightly()?, workspace::host()?);
    // The adapters' crates take long to build, so the core does not wait for them.
    for features in [&["--features", CORE_FEATURES][..], &["--lib", "--all-features"]] {
        let words = "test --package dlbridge --package dlbridge-sealed --no-fail-fast --test it \
            --test binding --test depth --target";
        let test = workspace::cargo(sh, Some(&nightly)).args(words.split_whitespace());
        let test = test.arg(&host).args(features);
        // A copy of 2^62 bytes is an error in the tests, as it is without the sanitizer.
        let options = "detect_leaks=1:allocator_may_return_null=1";
        test.env("RUSTFLAGS", "-Zsanitizer=address").env("ASAN_OPTIONS", options).run()?;
    }
    Ok(())
}

/// ThreadSanitizer over the tests in which threads share reference counts, deleters, queues, and what
/// the C API publishes without a lock. The standard library is built with the sanitizer as well:
/// otherwise it would report races that are none.
fn thread(sh: &Shell) -> Result<()> {
    let (nightly, host) = (nightly()?, workspace::host()?);
    let rustc = cmd!(sh, "rustup run {nightly} rustc --print=sysroot").quiet().read()?;
    if !Path::new(&rustc).join("lib/rustlib/src/rust/library").is_dir() {
        return skip("no sources of std: rustup +nightly component add rust-src");
    }
    let folder = target().join("sanitize-thread");
    let modules = THREADS.map(|name| format!("{name}::")).join(" ");
    let core = format!("--features {CORE_FEATURES} --test=it -- {modules}");
    for (package, tests) in [("dlbridge", &core[..]), ("dlbridge-capi", "--lib")] {
        let test = workspace::cargo(sh, Some(&nightly)).args(["test", "-Zbuild-std", "--target"]);
        let test = test.args([&host, "--package", package, "--target-dir"]).arg(&folder);
        test.args(tests.split(' ')).env("RUSTFLAGS", "-Zsanitizer=thread").run()?;
    }
    Ok(())
}

/// valgrind over the Rust tests that need no Python, as they are built by default, and over C programs
/// with the library as it is installed.
fn valgrind(sh: &Shell) -> Result<()> {
    if let Some(reason) = lacks_valgrind(sh) {
        return skip(reason);
    }
    // It prints nothing unless it finds an error.
    let valgrind = "valgrind --quiet --error-exitcode=9 --leak-check=full \
        --errors-for-leak-kinds=definite,indirect --show-leak-kinds=definite,indirect";
    let host = workspace::host()?.to_uppercase().replace('-', "_");
    let test = cmd!(
        sh,
        "cargo test --no-fail-fast --lib --tests --all-features --package dlbridge-sys
         --package dlbridge --package dlbridge-sealed -- --test-threads=1"
    );
    test.env(format!("CARGO_TARGET_{host}_RUNNER"), valgrind).run()?;
    // The C programs run themselves under valgrind. Optimised code has jumps that other code has not.
    let programs =
        cmd!(sh, "cargo test --package dlbridge-capi --test programs -- c_program random");
    Ok(programs.env("DLBRIDGE_CAPI_LIBRARY", capi::build()?).run()?)
}

/// The table of borrows in every order in which its threads can run. Its crate compiles the table's files with loom's
/// atomics, under a flag that other crates know as well: a folder of its own keeps their builds.
fn loom(sh: &Shell) -> Result<()> {
    let folder = target().join("loom");
    let run = cmd!(sh, "cargo run --release --package dlbridge-loom --target-dir {folder}");
    Ok(run.env("RUSTFLAGS", "--cfg loom").env_remove("CARGO_ENCODED_RUSTFLAGS").run()?)
}

/// Miri over the Rust tests: the core's, what the C API shares without a lock, and the adapters', whose
/// crates take longest to build. Each has the same part of the time, so that a slow one leaves some to the others.
fn miri(sh: &Shell, limit: Duration) -> Result<()> {
    let nightly = nightly()?;
    if !succeeds(cmd!(sh, "rustup run {nightly} cargo miri --version")) {
        return skip("no Miri: rustup +nightly component add miri");
    }
    let features = workspace::main_crate()?.features();
    // Modules of tests begin with the name of the adapted crate.
    let adapters: Vec<_> = features.iter().filter_map(|name| name.split('-').next()).collect();
    let words = "--package dlbridge --package dlbridge-sealed --all-features --test it";
    let programs = [
        ("the core", format!("--package dlbridge --lib --tests --features {CORE_FEATURES}"), ""),
        ("the C library", CAPI.to_owned(), " -Zmiri-many-seeds=0..16"),
        ("the adapters", format!("{words} -- {} safetensors", adapters.join(" ")), ""),
    ];
    let (seconds, mut unfinished) = ((limit / 3).as_secs().to_string(), Vec::new());
    for (name, words, schedules) in programs {
        let words = words.split(' ');
        let test =
            cmd!(sh, "timeout -k 10 {seconds} rustup run {nightly} cargo miri test {words...}");
        eprintln!("$ {test}");
        let mut test = Command::from(test);
        test.env("MIRIFLAGS", format!("{MIRI_FLAGS}{schedules}")).env("PROPTEST_CASES", MIRI_CASES);
        match test.status()?.code() {
            Some(0) => {}
            // The time was up.
            Some(124 | 137) => unfinished.push(name),
            _ => bail!("Miri failed: {name}"),
        }
    }
    if unfinished.is_empty() {
        return Ok(());
    }
    skip(format!("--minutes N gives more time for {}", unfinished.join(", ")))
}

/// The Python tests over a native module with AddressSanitizer.
fn python() -> Result<()> {
    let (venv, nightly) = (Venv::ready(&[])?, &nightly()?);
    // The sanitizer's runtime as a shared library, which is loaded before Python: Rust's own is
    // linked to programs only. A compiler without the file prints its name.
    let runtime = answer(cmd!(venv.sh, "cc -print-file-name=libasan.so")).map(PathBuf::from);
    let runtime = runtime.filter(|path| cfg!(target_os = "linux") && path.is_absolute());
    let Some(runtime) = runtime else { return skip("the C compiler has no libasan.so") };
    let (sh, folder, host) = (&venv.sh, target().join("sanitize"), workspace::host()?);
    let words = "build --features dlbridge-python/testing --package dlbridge-python \
                 --package dlbridge-example-extension --target";
    let words = words.split_whitespace();
    let build = workspace::cargo(sh, Some(nightly)).args(words);
    let build = build.args([&host, "--target-dir"]).arg(&folder);
    build.env("RUSTFLAGS", "-Zsanitizer=address").run()?;
    // The installed package stays as it is: the Python files are copied beside the new module.
    let package = folder.join("package");
    sh.remove_path(&package)?;
    for name in files()?.iter().filter(|name| name.starts_with("python/dlbridge/")) {
        sh.write_file(package.join(&name["python/".len()..]), sh.read_binary_file(name)?)?;
    }
    let built = folder.join(host).join("debug");
    sh.copy_file(built.join("lib_native.so"), package.join("dlbridge/_native.abi3.so"))?;
    // Operators and functions of arrays.
    let example = package.join("dlbridge_example");
    sh.write_file(example.join("__init__.py"), "from .dlbridge_example import *\n")?;
    let module = example.join("dlbridge_example.abi3.so");
    sh.copy_file(built.join("libdlbridge_example.so"), module)?;
    let logs = folder.join("logs");
    sh.remove_path(&logs)?;
    sh.create_dir(&logs)?;
    let options = "detect_leaks=1:allocator_may_return_null=1:log_path=";
    let tests = cmd!(sh, "python -c {PYTEST} -q -p no:cacheprovider -k {PYTHON_CHOICE}")
        .args(PYTHON_TESTS.split_whitespace().map(|test| format!("python/tests/test_{test}.py")))
        // Python's own allocator would hide what the tools look for.
        .env("PYTHONMALLOC", "malloc")
        .env("LD_PRELOAD", runtime)
        .env("ASAN_OPTIONS", format!("{options}{}/asan", logs.display()))
        // Python itself leaks: the logs decide, one for each process, also where a child ended as if all were well.
        .env("LSAN_OPTIONS", "exitcode=0")
        .env("PYTHONPATH", std::env::join_paths([package, root().join("extras/doctor")])?)
        .run();
    let mut findings = Vec::new();
    for log in sh.read_dir(&logs)? {
        findings.extend(of_log(&String::from_utf8_lossy(&sh.read_binary_file(log)?)));
    }
    findings.iter().for_each(|finding| println!("{finding}"));
    tests.context("the tests")?;
    ensure!(findings.is_empty(), "AddressSanitizer has {} findings", findings.len());
    Ok(())
}

/// The findings of one log that are not Python's own: invalid accesses, and leaks of our module, but for what PyO3
/// keeps of each class. The example extension keeps the definitions of its universal functions, and the payloads of panics.
/// An empty line separates them.
fn of_log(text: &str) -> Vec<String> {
    if text.contains("ERROR: AddressSanitizer") {
        return vec![text.to_owned()];
    }
    let leaks = text.split("\n\n").filter(|part| part.contains(" leak of "));
    let is_ours = |leak: &&str| leak.contains("_native") && !leak.contains("create_type_object");
    leaks.filter(is_ours).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{PYTHON_TESTS, THREADS, of_log};
    use crate::shell::root;

    /// A filter that matches no test is no error.
    #[test]
    fn the_files_of_tests_exist() {
        let core = THREADS.map(|name| format!("crates/dlbridge/tests/it/{name}.rs"));
        let python = PYTHON_TESTS.split_whitespace();
        let python = python.map(|name| format!("python/tests/test_{name}.py"));
        for file in core.into_iter().chain(python) {
            assert!(root().join(&file).is_file(), "expected {file}");
        }
    }

    #[test]
    fn leaks_of_our_module_are_told_from_those_of_python() {
        let python = "Direct leak of 8 byte(s) in 1 object(s):\n  #0 malloc\n  #1 libpython3.so";
        let ours = "Direct leak of 8 byte(s) in 1 object(s):\n  #0 malloc\n  #1 _native.abi3.so";
        let class = ours.replace("malloc", "create_type_object");
        let log = format!("\n=\n\n{python}\n\n{class}\n\n{ours}\n\nSUMMARY: 24 byte(s) leaked\n");
        assert_eq!(of_log(&log), [ours]);
        assert!(of_log(python).is_empty());
        assert_eq!(of_log("==1==ERROR: AddressSanitizer: heap-use-after-free").len(), 1);
    }
}
