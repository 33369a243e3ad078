//! The guide: every page of the repository in Markdown, its blocks and links checked, rendered.
//! What is checked about one block or link belongs to `blocks` and `links`.
//! Invariant: the rendered pages lie as the sources do, so that a link means the same in both.

mod blocks;
mod links;
mod markdown;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command;
use crate::failure::{Failure, Result};
use crate::house;
use crate::project;
use crate::venv::Venv;
use links::End;

/// The tool's configuration, with the order of the pages.
const CONFIGURATION: &str = "docs/mkdocs.yml";
/// What the pages look like.
const STYLE: &str = "docs/guide.css";
/// The pages that are part of the guide lie here; others are linked.
const CHAPTERS: &str = "docs/";
/// What a link to a folder leads to.
const INDEX: &str = "README.md";

/// Checks every page of the repository and renders them all; gives the first one rendered.
pub(crate) fn build(venv: &Venv) -> Result<PathBuf> {
    let folder = project::target_folder()?.join("guide");
    let _ = fs::remove_dir_all(&folder);
    let configuration = project::read(&project::path(CONFIGURATION))?;
    let mut gathered = Gathered::new(project::files()?);
    gathered.all(&configuration)?;
    house::report(&gathered.findings)?;
    for (name, text) in &gathered.staged {
        project::write(&folder.join("pages").join(name), text)?;
    }
    project::write(&folder.join("mkdocs.yml"), configuration)?;
    let mut mkdocs = venv.run_python();
    // Not `--quiet`, which would leave warnings uncounted.
    mkdocs.args(["-m", "mkdocs", "build", "--strict", "--config-file"]);
    command::output(mkdocs.arg(folder.join("mkdocs.yml")))?;
    println!("{} links leave the repository; they are not followed", gathered.outside);
    Ok(folder.join("html/index.html"))
}

/// What the pages are and need, and what is wrong with them.
struct Gathered {
    files: BTreeSet<PathBuf>,
    staged: Vec<(PathBuf, Vec<u8>)>,
    linked: BTreeSet<PathBuf>,
    outside: usize,
    findings: Vec<String>,
}

impl Gathered {
    fn new(files: Vec<String>) -> Self {
        let files = files.into_iter().map(PathBuf::from).collect();
        let (staged, linked) = (Vec::new(), BTreeSet::from([PathBuf::from(STYLE)]));
        Self { files, staged, linked, outside: 0, findings: Vec::new() }
    }

    fn all(&mut self, configuration: &str) -> Result {
        let rust_runner = project::read(&project::path(blocks::RUST_RUNNER))?;
        for name in self.files.clone().iter().filter(|name| is_page(name)) {
            let name = name.to_str().expect("git lists text");
            // A file that was just removed may still be listed.
            let Ok(text) = project::read(&project::path(name)) else { continue };
            if name.starts_with(CHAPTERS) && !configuration.contains(&format!(": {name}\n")) {
                self.findings.push(format!("{name}: {CONFIGURATION} does not list it"));
            }
            self.blocks(name, &text, &rust_runner);
            let text = self.links(name, &text);
            self.staged.push((name.into(), text.into_bytes()));
        }
        for name in &self.linked {
            let bytes = fs::read(project::path(&name.to_string_lossy()))
                .map_err(|error| Failure::new(format!("{}: {error}", name.display())))?;
            self.staged.push((name.clone(), bytes));
        }
        Ok(())
    }

    fn blocks(&mut self, page: &str, text: &str, rust_runner: &str) {
        for block in markdown::blocks(text) {
            if let Some(problem) = blocks::check(page, &block, rust_runner) {
                self.findings.push(format!("{page}:{}: {problem}", block.line));
            }
        }
    }

    /// Checks the links of a page, and gives the page as it is to be rendered.
    fn links(&mut self, page: &str, text: &str) -> String {
        let mut shown = markdown::shown(text);
        for link in markdown::links(text) {
            let problem = match links::end(page, link.target) {
                End::Here => None,
                End::Outside => {
                    self.outside += 1;
                    None
                }
                End::Nowhere(why) => Some(why),
                End::Inside(path) if self.files.contains(&path) => {
                    if !is_page(&path) {
                        self.linked.insert(path);
                    }
                    None
                }
                End::Inside(path) if self.files.contains(&path.join(INDEX)) => {
                    let target = link.target.trim_end_matches('/');
                    let whole = format!("]({target}/{INDEX})");
                    shown = shown.replace(&format!("]({})", link.target), &whole);
                    None
                }
                End::Inside(_) => Some("no file of the repository".to_owned()),
            };
            if let Some(problem) = problem {
                self.findings.push(format!("{page}:{}: {}: {problem}", link.line, link.target));
            }
        }
        shown
    }
}

fn is_page(name: &Path) -> bool {
    name.extension().is_some_and(|extension| extension == "md")
}
