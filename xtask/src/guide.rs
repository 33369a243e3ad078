//! The guide: every page of the repository in Markdown. Each block of code has a kind, and each kind
//! is run or compared by a test; mkdocs renders the pages with `docs/hooks.py`, and checks where links
//! lead. The rendered pages are laid out as the sources are.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use pulldown_cmark::{CodeBlockKind, Event, Tag, TagEnd};
use xshell::cmd;

use crate::arguments::Cli;
use crate::python::{Set, Venv};
use crate::shell::{files, line_of, report, root, target};

/// mkdocs's configuration, with the order of the pages.
const CONFIGURATION: &str = "docs/mkdocs.yml";
/// Runs the examples in Rust.
const RUST_RUNNER: &str = "docs/guide/src/lib.rs";
/// The pages whose examples `python/tests/test_pages.py` runs,
const PYTHON_PAGES: &[&str] = &["README.md", "docs/", "examples/", "python/"];
/// `julia/DLBridge/test/packages/guide.jl`,
const JULIA_PAGES: &[&str] = &["README.md", "docs/"];
/// and `crates/dlbridge-capi/tests/programs.rs`.
const C_PAGES: &[&str] = &["docs/guide/c.md"];
/// The prompts of sessions.
const PROMPTS: &[&str] = &[">>> ", "$ ", "julia> "];
/// Programs that a shell finds once the text before has been followed.
const PROGRAMS: &[&str] = &[".", "cd", "cp", "dlpack-doctor", "maturin", "pip", "pytest"];
/// Commands of cargo besides ours.
const CARGO: &[&str] = &["add", "new", "run", "test"];
/// Modules that `python -m` runs.
const MODULES: &[&str] = &["dlbridge", "pip", "venv"];

/// Makes the pages, and prints where the landing page is.
pub(crate) fn run() -> Result<()> {
    let page = build(&Venv::ready(&[Set::named("guide")?])?)?;
    println!("{}", page.display());
    Ok(())
}

/// Checks every page of the repository and renders them all; returns the landing page.
pub(crate) fn build(venv: &Venv) -> Result<PathBuf> {
    let (sh, folder) = (&venv.sh, target().join("guide"));
    sh.remove_path(&folder)?;
    let configuration = sh.read_file(CONFIGURATION)?;
    let rust_runner = sh.read_file(RUST_RUNNER)?;
    let mut findings = Vec::new();
    for name in &files()? {
        // Links may lead to any file of the repository.
        sh.write_file(folder.join("pages").join(name), sh.read_binary_file(name)?)?;
        if !name.ends_with(".md") {
            continue;
        }
        let text = sh.read_file(name)?;
        if name.starts_with("docs/") && !configuration.contains(&format!(": {name}\n")) {
            findings.push(format!("{name}: {CONFIGURATION} does not list it"));
        }
        for block in blocks(&text) {
            if let Some(problem) = block.problem(name, &rust_runner) {
                let line = line_of(&text, block.start);
                findings.push(format!("{name}:{line}: {problem}"));
            }
        }
    }
    report(&findings)?;
    let copy = folder.join("mkdocs.yml");
    sh.write_file(&copy, configuration)?;
    // Not `--quiet`, which would leave warnings uncounted.
    cmd!(sh, "python -m mkdocs build --strict --config-file {copy}").run()?;
    Ok(folder.join("index.html"))
}

/// A block of code.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// Where its opening fence is.
    start: usize,
    /// The first word after the fence: the language.
    pub(crate) kind: String,
    /// The text of the HTML comment in the line above, such as the file of an excerpt.
    note: Option<String>,
    pub(crate) code: String,
}

pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut in_block, mut comment) = (false, (String::new(), 0));
    for (event, place) in pulldown_cmark::Parser::new(text).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let kind = match &kind {
                    CodeBlockKind::Fenced(words) => words.split([',', ' ']).next(),
                    CodeBlockKind::Indented => None,
                };
                let is_above = comment.1 == place.start && !comment.0.is_empty();
                let note = is_above.then(|| std::mem::take(&mut comment.0));
                let kind = kind.unwrap_or_default().to_owned();
                blocks.push(Block { start: place.start, kind, note, code: String::new() });
                in_block = true;
            }
            Event::End(TagEnd::CodeBlock) => in_block = false,
            Event::Text(code) if in_block => {
                blocks.last_mut().expect("the block was opened").code += &code;
            }
            Event::Html(html) => {
                let note = html.trim().strip_prefix("<!--").and_then(|s| s.strip_suffix("-->"));
                comment = (note.unwrap_or_default().trim().to_owned(), place.end);
            }
            _ => {}
        }
    }
    blocks
}

impl Block {
    /// What is wrong with the block, if anything is.
    fn problem(&self, page: &str, rust_runner: &str) -> Option<String> {
        let is_in = |places: &[&str]| {
            let is_run = places.iter().any(|place| page.starts_with(place));
            (!is_run).then(|| "an example in a page whose examples are not run".to_owned())
        };
        match &self.kind[..] {
            "rust" => {
                let is_run = rust_runner.contains(&format!("include_str!(\"../../../{page}\")"));
                (!is_run).then(|| format!("an example in Rust that {RUST_RUNNER} does not name"))
            }
            "python" | "pycon" => is_in(PYTHON_PAGES),
            "julia" => is_in(JULIA_PAGES),
            "c" | "cpp" => is_in(C_PAGES),
            "rs" | "py" | "toml" => self.excerpt(),
            "sh" => self.code.lines().find_map(unknown_command),
            "text" => {
                let is_typed = |line: &str| PROMPTS.iter().any(|prompt| line.starts_with(prompt));
                let is_session = self.code.lines().any(is_typed);
                is_session.then(|| "a session that is not run: make it pycon".to_owned())
            }
            other => Some(format!("a code block of unknown kind `{other}`, which is not run")),
        }
    }

    /// An excerpt is some lines of a file.
    fn excerpt(&self) -> Option<String> {
        let Some(name) = &self.note else {
            return Some("an excerpt without a comment above it that names its file".to_owned());
        };
        let Ok(file) = std::fs::read_to_string(root().join(name)) else {
            return Some(format!("an excerpt of {name}, which does not exist"));
        };
        // Indented or not.
        let lines = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
        (!lines(&file).contains(&lines(&self.code))).then(|| format!("{name} has no such lines"))
    }
}

/// A line for a shell whose command does not exist. Our own are parsed, with their arguments.
pub(crate) fn unknown_command(line: &str) -> Option<String> {
    let line = line.split(" #").next().unwrap_or_default();
    let words: Vec<_> = line.split_whitespace().collect();
    let is_file = |name: &str| root().join(name).is_file();
    let is_known = match words[..] {
        [] | ["cargo", "xtask"] => true,
        [comment, ..] if comment.starts_with('#') => true,
        ["cargo", "xtask", ..] => Cli::try_parse_from(&words[1..]).is_ok(),
        ["cargo", name, ..] => CARGO.contains(&name),
        ["python" | "python3", "-m", module, ..] => MODULES.contains(&module),
        ["python" | "sh" | "bash", script, ..] => is_file(script),
        ["julia", "-e", ..] | ["cc", ..] => true,
        [program, ..] => PROGRAMS.contains(&program) || is_file(program),
    };
    (!is_known).then(|| format!("`{}`: no such command", line.trim()))
}

#[cfg(test)]
mod tests {
    use super::blocks;

    const RUNNER: &str = "#[doc = include_str!(\"../../../docs/guide/a.md\")]";

    fn fenced(text: &str) -> String {
        text.replace("FENCE", "```")
    }

    #[test]
    fn blocks_are_read() {
        let page = "[one](a.md).\n\n<!-- src/lib.rs -->\nFENCErust,no_run\n# use x;\n[four](d.md)\nFENCE\n\nMore.\n\n\
            FENCE\nplain\nFENCE\n";
        let blocks = blocks(&fenced(page));
        let [rust, plain] = &blocks[..] else { panic!("{blocks:?}") };
        assert_eq!((&rust.kind[..], rust.note.as_deref()), ("rust", Some("src/lib.rs")));
        assert_eq!(rust.code, "# use x;\n[four](d.md)\n");
        assert_eq!((&plain.kind[..], &plain.note, &plain.code[..]), ("", &None, "plain\n"));
    }

    #[test]
    fn every_kind_is_run_or_compared() {
        let problem = |page, block| {
            let text = fenced(&format!("{block}\nFENCE\n"));
            blocks(&text)[0].problem(page, RUNNER)
        };
        for (page, fine) in [
            ("docs/guide/a.md", "FENCErust\nfn f() {}"),
            ("docs/guide/b.md", "FENCEpython\n1"),
            ("README.md", "FENCEtext\ntensor([2.])"),
            ("README.md", "<!-- xtask/src/guide.rs -->\nFENCErs\nmod tests {\nuse super::blocks;"),
            ("README.md", "FENCEsh\ncargo xtask demo   # all"),
            ("README.md", "FENCEsh\npython -m dlbridge doctor"),
        ] {
            assert_eq!(problem(page, fine), None, "{fine}");
        }
        for (page, wrong, why) in [
            ("docs/guide/b.md", "FENCErust\nfn f() {}", "does not name"),
            ("CONTRIBUTING.md", "FENCEpython\n1", "not run"),
            ("README.md", "FENCE\n1", "unknown kind"),
            ("README.md", "FENCEruby\n1", "unknown kind"),
            ("README.md", "FENCEtext\n>>> 1", "pycon"),
            ("README.md", "FENCEtoml\n[dependencies]", "names its file"),
            ("README.md", "<!-- no/such.rs -->\nFENCErs\n1", "does not exist"),
            ("README.md", "<!-- xtask/src/guide.rs -->\nFENCErs\nFENCE_NOT_HERE", "no such lines"),
            ("README.md", "FENCEsh\ncargo xtask fly", "no such command"),
            ("README.md", "FENCEsh\ncargo xtask fuzz --sedes 3", "no such command"),
            ("README.md", "FENCEsh\npython no/such.py", "no such command"),
        ] {
            let found = problem(page, wrong).unwrap_or_default();
            assert!(found.contains(why), "{wrong}: {found}");
        }
    }
}
