//! Who runs a block of code: every kind has somebody, so that no example is left to rot.
//! Running them belongs to the tests that are named here.
//! Invariant: a kind that is not listed is a finding.

use crate::commands::help;
use crate::guide::markdown::Block;
use crate::project;

/// Where `cargo test` gets the examples in Rust from.
pub(crate) const RUST_RUNNER: &str = "crates/dlbridge-pyo3/src/guide.rs";
/// The folders and pages whose examples `python/tests/test_guide.py` runs,
const PYTHON_PAGES: &[&str] = &["README.md", "docs/", "examples/", "python/"];
/// `julia/DLBridge/test/guide.jl`,
const JULIA_PAGES: &[&str] = &["README.md", "docs/"];
/// and `crates/dlbridge-capi/tests/programs.rs`.
const C_PAGES: &[&str] = &["docs/guide/c.md"];
/// What stands at the head of a line that a user types.
const PROMPTS: &[&str] = &[">>> ", "$ ", "julia> "];
/// Programs that a shell finds once the text before has been followed.
const PROGRAMS: &[&str] = &["cd", "cp", "dlpack-doctor", "maturin", "pip", "pytest"];
/// Commands of cargo beside ours.
const CARGO: &[&str] = &["add", "new", "run", "test"];
/// Modules that `python -m` runs.
const MODULES: &[&str] = &["dlbridge", "pip", "venv"];

/// What is wrong with a block, if anything is.
pub(crate) fn check(page: &str, block: &Block<'_>, rust_runner: &str) -> Option<String> {
    match block.kind {
        "rust" => {
            let run = rust_runner.contains(&format!("include_str!(\"../../../{page}\")"));
            (!run).then(|| format!("an example in Rust that {RUST_RUNNER} does not name"))
        }
        "python" | "pycon" => is_in(page, PYTHON_PAGES),
        "julia" => is_in(page, JULIA_PAGES),
        "c" => is_in(page, C_PAGES),
        "rs" | "py" => excerpt(block),
        "toml" if block.note.is_some() => excerpt(block),
        "toml" => dependencies(block),
        "sh" => first(block, command),
        "text" => first(block, |line| {
            let typed = PROMPTS.iter().any(|prompt| line.starts_with(prompt));
            typed.then(|| "a session that nobody runs: make it pycon".to_owned())
        }),
        other => Some(format!("a code block of unknown kind `{other}`, which nobody runs")),
    }
}

fn is_in(page: &str, places: &[&str]) -> Option<String> {
    let run = places.iter().any(|place| page.starts_with(place));
    (!run).then(|| "an example in a page whose examples are not run".to_owned())
}

fn first(block: &Block<'_>, problem: impl Fn(&str) -> Option<String>) -> Option<String> {
    block.code.iter().find_map(|line| problem(line))
}

/// An excerpt is some lines of a file, indented as they like.
fn excerpt(block: &Block<'_>) -> Option<String> {
    let Some(name) = block.note else {
        return Some("an excerpt without a comment above it that names its file".to_owned());
    };
    let Ok(file) = project::read(&project::path(name)) else {
        return Some(format!("an excerpt of {name}, which does not exist"));
    };
    let file: Vec<_> = file.lines().collect();
    (!holds(&file, &block.code)).then(|| format!("not what stands in {name}"))
}

fn holds(file: &[&str], excerpt: &[&str]) -> bool {
    file.windows(excerpt.len().max(1)).any(|lines| {
        let Some(indent) = lines[0].strip_suffix(excerpt.first().copied().unwrap_or_default())
        else {
            return false;
        };
        let same = |(line, shown): (&&str, &&str)| {
            line == shown && line.is_empty() || line.strip_prefix(indent) == Some(shown)
        };
        indent.trim().is_empty() && lines.iter().zip(excerpt).all(same)
    })
}

/// What a user is told to depend on is what the workspace depends on. (That the manifest of the
/// guide builds is tested by `crates/dlbridge-pyo3/tests/copied_project.rs`.)
fn dependencies(block: &Block<'_>) -> Option<String> {
    let lines = block.code.iter().skip_while(|line| **line != "[dependencies]").skip(1);
    lines.take_while(|line| !line.starts_with('[')).find_map(|line| dependency(line))
}

fn dependency(line: &str) -> Option<String> {
    let (name, rest) = line.split_once(" = ")?;
    let version = rest.split('"').nth(1).unwrap_or_default();
    let manifest = project::read(&project::path("Cargo.toml")).unwrap_or_default();
    let same = manifest.lines().any(|ours| {
        let ours = ours.split_once(" = ").filter(|(other, _)| *other == name);
        ours.is_some_and(|(_, rest)| rest.split('"').any(|word| word.starts_with(version)))
    });
    (!same).then(|| format!("`{line}` is not what Cargo.toml says"))
}

/// A command is one that exists.
fn command(line: &str) -> Option<String> {
    let line = line.split(" #").next().unwrap_or_default();
    let words: Vec<_> = line.split_whitespace().collect();
    let known = match words[..] {
        [] => true,
        [comment, ..] if comment.starts_with('#') => true,
        ["cargo", "xtask", name, ..] => help::knows(name),
        ["cargo", name, ..] => CARGO.contains(&name),
        ["python", "-m", module, ..] => MODULES.contains(&module),
        ["python", script, ..] | ["sh" | "bash", script, ..] => project::path(script).is_file(),
        ["julia", "-e", ..] | ["cc", ..] => true,
        [program, ..] => PROGRAMS.contains(&program) || project::path(program).is_file(),
    };
    (!known).then(|| format!("`{}`: no such command", line.trim()))
}

#[cfg(test)]
mod tests {
    use super::{check, holds};
    use crate::guide::markdown::blocks;

    const RUNNER: &str = "#[doc = include_str!(\"../../../docs/guide/a.md\")]";

    fn problem(page: &str, block: &str) -> Option<String> {
        let fence = "`".repeat(3);
        let text = block.replace("FENCE", &fence) + "\n" + &fence;
        check(page, &blocks(&text)[0], RUNNER)
    }

    #[test]
    fn every_kind_has_somebody_who_runs_it() {
        assert_eq!(problem("docs/guide/a.md", "FENCErust\nfn f() {}"), None);
        assert!(problem("docs/guide/b.md", "FENCErust\nfn f() {}").is_some());
        assert_eq!(problem("docs/guide/b.md", "FENCEpython\n1"), None);
        assert!(problem("CONTRIBUTING.md", "FENCEpython\n1").is_some());
        for unknown in ["", "ruby", "console"] {
            let found = problem("README.md", &format!("FENCE{unknown}\n1")).unwrap();
            assert!(found.contains("unknown kind"), "{found}");
        }
    }

    #[test]
    fn sessions_are_run() {
        assert_eq!(problem("README.md", "FENCEtext\ntensor([2.])"), None);
        assert!(problem("README.md", "FENCEtext\n>>> 1").is_some());
    }

    #[test]
    fn commands_exist() {
        for fine in ["cargo xtask demo   # all", "python -m dlbridge doctor", "# only words", ""] {
            assert_eq!(problem("README.md", &format!("FENCEsh\n{fine}")), None, "{fine}");
        }
        for odd in ["cargo xtask fly", "python -m flask", "python no/such.py", "frobnicate"] {
            assert!(problem("README.md", &format!("FENCEsh\n{odd}")).is_some(), "{odd}");
        }
    }

    #[test]
    fn dependencies_are_the_workspaces() {
        assert_eq!(problem("README.md", "FENCEtoml\n[dependencies]\ndlbridge = \"0.1\""), None);
        assert!(problem("README.md", "FENCEtoml\n[dependencies]\ndlbridge = \"7.1\"").is_some());
        assert!(problem("README.md", "FENCEtoml\n[dependencies]\nnot-ours = \"0.1\"").is_some());
    }

    #[test]
    fn excerpts_are_what_the_file_says() {
        let file = ["impl X {", "    fn f() {", "", "        1", "    }", "}"];
        assert!(holds(&file, &["fn f() {", "", "    1", "}"]));
        assert!(holds(&file, &["impl X {", "    fn f() {"]));
        assert!(!holds(&file, &["fn f() {", "", "    2", "}"]));
        assert!(!holds(&file, &["fn f() {", "", "1", "}"]));
        assert!(problem("README.md", "<!-- no/such.rs -->\nFENCErs\n1").is_some());
        assert!(problem("README.md", "FENCErs\n1").unwrap().contains("names its file"));
        let this = "<!-- xtask/src/guide/blocks.rs -->\nFENCErs\nconst FENCE_NOT_HERE: u8 = 1;";
        assert!(problem("README.md", this).is_some());
    }
}
