//! `cargo xtask new FOLDER`: starts an extension in a new folder.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use xshell::cmd;

use crate::guide;
use crate::python::{CHOICE, Set};
use crate::shell::{answer, files, root, shell};

/// The project that is copied.
const START: &str = "examples/new-extension/";
/// What `--operators` has in place of some of its files. It has no stub.
const OPERATORS: &str = "examples/new-operators/";
/// The crates that it needs.
const NEEDED: [&str; 3] = ["dlbridge", "dlbridge-pyo3", "dlbridge-sys"];
/// This one too, for operators, and its folder here.
const NEEDED_TOO: (&str, &str) = ("dlbridge-operators", "extras/operators");
/// Words of Rust and of Python that are no names, and crates that every program has.
const RESERVED: &str = "abstract alloc and as assert async await become box break class const continue core crate def del do dyn \
    elif else enum except extern false final finally fn for from gen global if impl import in is lambda let loop macro match mod \
    move mut nonlocal not or override pass priv proc_macro pub pyo3 raise ref return self static std struct super test trait \
    true try type typeof unsafe unsized use virtual where while with yield";

/// Starts a project, and says what to do next.
pub(crate) fn run(folder: &Path, operators: bool) -> Result<()> {
    let absolute = std::path::absolute(folder)?;
    new(&absolute, &root().join("crates"), operators)?;
    print!("{}", next(folder, &shell().read_file(absolute.join("README.md"))?));
    Ok(())
}

/// Copies the project that extensions start from to a folder whose name becomes the project's, with crates of a
/// folder until they are published.
pub(crate) fn new(folder: &Path, crates: &Path, operators: bool) -> Result<()> {
    ensure!(!folder.exists(), "expected a new folder, found {}", folder.display());
    let sh = shell();
    let name = folder.file_name().and_then(OsStr::to_str).context("expected a folder's name")?;
    if let Some(problem) = problem(name) {
        bail!(
            "{name}: {problem}; the folder's name becomes the name of the crate and of the Python module"
        );
    }
    let (name, module) = (name.replace('_', "-"), name.replace('-', "_"));
    let renamed =
        |text: String| text.replace("my-extension", &name).replace("my_extension", &module);
    let starts = if operators { &[START, OPERATORS][..] } else { &[START] };
    for start in starts {
        for file in files()?.iter().filter_map(|file| file.strip_prefix(start)) {
            if operators && file.ends_with(".pyi") {
                continue;
            }
            let text = renamed(sh.read_file(format!("{start}{file}"))?);
            sh.write_file(folder.join(renamed(file.to_owned())), text)?;
        }
    }
    let manifest = folder.join("Cargo.toml");
    let text = sh.read_file(&manifest)?;
    let needed = NEEDED.map(|name| (name, crates.join(name)));
    let too = operators.then(|| (NEEDED_TOO.0, root().join(NEEDED_TOO.1)));
    let patch = patch(needed.into_iter().chain(too));
    Ok(sh.write_file(manifest, format!("{text}\n# Until the crates are published.\n{patch}"))?)
}

/// Why a project cannot have a name, if it cannot.
fn problem(name: &str) -> Option<String> {
    let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if !is_word || !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Some("expected letters, digits, - and _, with a letter at the start".to_owned());
    }
    let module = name.replace('-', "_").to_lowercase();
    let is_in = |words: &str| words.split_whitespace().any(|word| word.replace('-', "_") == module);
    if is_in(RESERVED) {
        return Some("a word that Rust or Python reserves".to_owned());
    }
    if NEEDED.into_iter().chain([NEEDED_TOO.0]).any(is_in) {
        return Some("a crate that the project needs has this name".to_owned());
    }
    let sets = Set::all().unwrap_or_default();
    let mut packages = sets.iter().flat_map(Set::pins).filter_map(|pin| pin.split("==").next());
    if packages.any(is_in) || is_in(&standard_library()) {
        return Some(format!(
            "`import {module}` would import it in place of a package of this name"
        ));
    }
    None
}

/// The modules of Python's standard library; none where no Python runs.
fn standard_library() -> String {
    let sh = shell();
    let chosen = std::env::var(CHOICE).unwrap_or_default();
    let names = "import sys; print(*sys.stdlib_module_names)";
    let programs = [&chosen[..], "python3", "python"].into_iter().filter(|it| !it.is_empty());
    let mut said = programs.filter_map(|program| answer(cmd!(sh, "{program} -c {names}")));
    said.next().unwrap_or_default()
}

/// What to do in a new folder: the commands of its page.
fn next(folder: &Path, page: &str) -> String {
    let blocks = guide::blocks(page);
    let commands = blocks.iter().find(|block| block.kind == "sh").map_or("", |it| &it.code);
    let (folder, mut text) = (folder.display(), String::new());
    for line in format!("cd {folder}\n{commands}").lines() {
        text += &format!("    {line}\n");
    }
    format!("started a project in {folder}; next, to build and test it:\n\n{text}")
}

/// Crates of these names and folders in place of those of the index.
pub(crate) fn patch<'a>(crates: impl IntoIterator<Item = (&'a str, PathBuf)>) -> String {
    let line = |(name, at): (&str, PathBuf)| format!("{name} = {{ path = '{}' }}\n", at.display());
    format!("[patch.crates-io]\n{}", crates.into_iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{START, new, next, problem, shell};

    #[test]
    fn names_that_are_no_crate_no_module_or_a_package_are_refused() {
        for (name, why) in [
            ("2d", "letters"),
            ("my ext", "letters"),
            ("caf\u{e9}", "letters"),
            ("-x", "letters"),
            ("class", "reserves"),
            ("fn", "reserves"),
            ("pyo3", "reserves"),
            ("dlbridge_pyo3", "needs"),
            ("numpy", "in place of"),
            ("Torch", "in place of"),
            ("json", "in place of"),
        ] {
            let found = problem(name).unwrap_or_default();
            assert!(found.contains(why), "{name}: {found:?}");
        }
        for name in ["my-extension", "my_extension", "image2d", "NumpyTools"] {
            assert_eq!(problem(name), None, "{name}");
        }
        let sh = shell();
        let scratch = sh.create_temp_dir().unwrap();
        let folder = scratch.path().join("numpy");
        let error = new(&folder, Path::new("crates"), false).unwrap_err().to_string();
        assert!(error.starts_with("numpy: `import numpy`") && !folder.exists(), "{error}");
    }

    #[test]
    fn a_new_project_says_what_to_do_next() {
        let page = shell().read_file(format!("{START}README.md")).unwrap();
        let text = next(Path::new("../fast"), &page);
        let commands: Vec<_> = text.lines().skip(2).map(str::trim_start).collect();
        assert_eq!(commands[0], "cd ../fast");
        // PyO3 generates a stub of a `mod` alone.
        let source = shell().read_file(format!("{START}src/lib.rs")).unwrap();
        assert!(source.contains("pymodule(gil_used = false)]\nmod my_extension {"), "{source}");
        for command in ["python3 -m venv .venv", "maturin develop --profile dev", "pytest"] {
            assert!(commands.contains(&command), "{command}: {text}");
        }
    }
}
