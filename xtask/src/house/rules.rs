//! What files may not contain, as patterns of `git grep`. This file is searched as well: no pattern
//! matches itself.

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::shell::shell;

/// What is wrong, a pattern that finds it, and where it is looked for.
const RULES: [(&str, &str, &[&str]); 10] = [
    (
        "unsafe code outside folders named `memory`, the memory files of adapters and the files listed in `house/rules.rs`",
        UNSAFE,
        &[
            "crates/dlbridge/src",
            ":(exclude,glob)crates/dlbridge/src/**/memory/**",
            ":(exclude,glob)crates/dlbridge/src/adapters/**/*memory.rs",
            // `Layout::again`, the only constructor that does not measure.
            ":(exclude)crates/dlbridge/src/layout/measured.rs",
            "extras/sealed/src",
            ":(exclude)extras/sealed/src/fork.rs",
            ":(exclude)extras/sealed/src/memfd.rs",
            ":(exclude)extras/sealed/src/channel/peer.rs",
            ":(exclude)extras/sealed/src/safetensors_0_8/memory.rs",
        ],
    ),
    (
        "unsafe code of the Python crate outside `ffi`, `interpreter` and the files listed in `house/rules.rs`",
        UNSAFE,
        &[
            "crates/dlbridge-pyo3/src",
            ":(exclude)crates/dlbridge-pyo3/src/ffi",
            ":(exclude)crates/dlbridge-pyo3/src/interpreter",
            // Below `ffi`: what is released later.
            ":(exclude)crates/dlbridge-pyo3/src/release.rs",
            // Pairs an object with the table or layout that its type was found to have.
            ":(exclude)crates/dlbridge-pyo3/src/types/cache.rs",
            // A function whose caller is PyO3.
            ":(exclude)crates/dlbridge-pyo3/src/class/tensor.rs",
        ],
    ),
    (
        "a struct with the head of an object, which has no size for abi3t: see `interpreter/head.rs`",
        r"^[[:space:]]+(pub(\([a-z]+\))? )?[a-z_]+: (ffi::)?Py(Var)?[O]bject,",
        &["crates/dlbridge-pyo3/src"],
    ),
    (
        "Python code inside `get_or_init` of a `PyOnceLock`, where it waits for itself if it comes back: \
         see `interpreter/mod.rs`",
        r"[.]get_or_(try_)?init\((([a-z_]+[.])*py(\(\))?,|$)",
        &["crates", "docs", "examples", "extras", "python"],
    ),
    (
        "an exception whose text PyO3 makes, which ends the process where there is no memory for it: see \
         `error.rs::error_of`",
        r"::new_er[r]\(([^(]|$)",
        &["crates/dlbridge-pyo3/src", "python/src"],
    ),
    (
        "a `catch_unwind`, which ends the process where Python ends the thread: see `memory/unwind.rs`",
        "catch_unwin[d]([(,;]|$)",
        &[
            ":(glob)crates/*/src/**",
            ":(glob)extras/*/src/**",
            "python/src",
            ":(exclude)crates/dlbridge/src/memory/unwind.rs",
            // What it catches calls Python by `attach`, which stops such a thread.
            ":(exclude)extras/operators/src/failure.rs",
            ":(exclude)crates/dlbridge-testing",
        ],
    ),
    ("an example that is never compiled", "```([^`]*[, ])?ignore", &["."]),
    (
        "a number of axes that is not called `ndim`, as the array API does",
        "(^|[^A-Za-z])(ran[k]|Ran[k]|RAN[K])s?([^A-Za-z]|$)|[a-z]Ran[k]([^a-z]|$)",
        // XLA's own name of a field.
        &[".", ":(exclude)*xla*", ":(exclude)*Cargo.lock"],
    ),
    ("a path of one machine", "(^|[^[:alnum:]._~*}/-]|://)/(root|home|work|Users)/", WRITTEN),
    (
        "a package host",
        "(pypi|pythonhosted|npmjs|debian|download[.]pytorch|proxy[.]golang)[.]org|crates[.]io\
         |ubuntu[.]com|rust-lang[.]org/dist",
        WRITTEN,
    ),
];
const UNSAFE: &str = r"^[[:space:]]*(|[^/[:space:]].*)unsafe (\{|impl|fn|extern)";
/// All files but those of tools.
const WRITTEN: &[&str] = &[".", ":(exclude)*Cargo.lock", ":(exclude)*Manifest.toml"];

/// Every violation, as `name:line:text: what`.
pub(crate) fn check() -> Result<Vec<String>> {
    let (sh, mut findings) = (shell(), Vec::new());
    for (what, pattern, places) in RULES {
        let found = grep(&sh, pattern, &["--untracked"], places)?;
        findings.extend(found.lines().map(|line| format!("{line}: {what}")));
    }
    Ok(findings)
}

fn grep(sh: &Shell, pattern: &str, options: &[&str], places: &[&str]) -> Result<String> {
    let grep = cmd!(sh, "git grep {options...} -InE -e {pattern} -- {places...}");
    let output = grep.quiet().ignore_status().output()?;
    // 1: nothing was found.
    ensure!(output.status.code() < Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{RULES, grep, shell};

    #[test]
    fn each_rule_finds_its_violations_alone() {
        // Each word is in two parts, so that this file keeps the rules.
        let unsafe_code =
            "let x = unsafe { f() };\nunsafe impl Send for X {}\n    pub unsafe fn f()";
        let violations = [
            unsafe_code,
            unsafe_code,
            "    head: Py~Object,\n    pub(crate) head: ffi::Py~Object,\n    base: ffi::PyVar~Object,",
            "L.get_or_~init(py, || 1)\nL.get_or_~try_init(object.py(), make)\nL.get_or_~init(",
            "PyTypeError::new_er~r(message)\nPyTypeError::new_er~r(\nE::new_er~r(text)",
            "panic::catch_unwin~d(work)\nuse std::panic::catch_unwin~d;\n{catch_unwin~d, x}",
            "``~`ignore\n``~`rust,ignore\n``~`rust, ignore",
            "x.ran~k()\nANY_RAN~K\nAnyRan~k",
            "/ho~me/x\nsee `/wo~rk/x`\nfile:///ro~ot/x",
            "https://pypi.~org\ncrates.~io/x\narchive.ubuntu.~com",
        ];
        let fine = "/// unsafe { }\npub unsafe trait Element\n#![forbid(unsafe_code)]\n``~`no_run\n\
            ONCE.get_or_init(find)\na.example/home/x\n../work/x\n/usr/lib\nhttps://docs.rs/dlbridge\n";
        let sh = shell();
        let folder = sh.create_temp_dir().unwrap();
        let _folder = sh.push_dir(folder.path());
        for ((what, pattern, _), bad) in RULES.iter().zip(violations) {
            sh.write_file("sample.txt", format!("{fine}{bad}\n").replace('~', "")).unwrap();
            let found = grep(&sh, pattern, &["--no-index"], &["sample.txt"]).unwrap();
            assert_eq!(found.lines().count(), 3, "{what}: {found}");
        }
    }
}
