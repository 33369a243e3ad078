//! The sets of Python packages, one file each in `requirements/`.
//! Installing them does not belong here. Invariant: pins live in those files only.

use std::path::PathBuf;

use crate::failure::{Failure, Result};
use crate::project;

/// What every command needs; its pins bind the other sets.
pub(crate) const BASE: &str = "base";
/// What the Python files are checked with.
pub(crate) const LINT: &str = "lint";
/// What the guide is rendered with.
pub(crate) const GUIDE: &str = "guide";
/// The frameworks that CI tests with.
pub(crate) const CI: &str = "ci";
/// All frameworks.
pub(crate) const FULL: &str = "full";

const FOLDER: &str = "requirements";

/// One file of requirements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set {
    /// The file's name without its extension.
    pub(crate) name: String,
    /// All that is in the file.
    pub(crate) text: String,
}

impl Set {
    /// Reads a set by its name.
    ///
    /// # Errors
    ///
    /// When there is no such set; the message tells which there are.
    pub(crate) fn load(name: &str) -> Result<Self> {
        let known = names();
        if !known.iter().any(|other| other == name) {
            let known = known.join(", ");
            return Err(Failure::usage(format!(
                "no Python packages are named `{name}`, only {known}"
            )));
        }
        let set = Self { name: name.to_owned(), text: String::new() };
        Ok(Self { text: project::read(&set.file())?, ..set })
    }

    /// The file.
    pub(crate) fn file(&self) -> PathBuf {
        project::path(FOLDER).join(format!("{}.txt", self.name))
    }

    /// What the set is: the comment in the file's first line.
    pub(crate) fn title(&self) -> &str {
        self.text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or(&self.name)
    }

    /// The sets that this one only gathers; empty for a set with packages of its own.
    fn members(&self) -> Vec<String> {
        let included = |line: &str| {
            let file = line.strip_prefix("-r ")?.trim();
            Some(file.strip_suffix(".txt").unwrap_or(file).to_owned())
        };
        self.text.lines().filter_map(included).collect()
    }
}

/// The named sets, with groups replaced by their members, each once.
///
/// # Errors
///
/// When there is no set of such a name.
pub(crate) fn resolve(names: impl IntoIterator<Item: AsRef<str>>) -> Result<Vec<Set>> {
    let mut sets = Vec::new();
    for name in names {
        resolve_one(name.as_ref(), &Set::load, &mut sets)?;
    }
    Ok(sets)
}

fn resolve_one(name: &str, load: &dyn Fn(&str) -> Result<Set>, sets: &mut Vec<Set>) -> Result {
    let set = load(name)?;
    let members = set.members();
    if members.is_empty() && !sets.contains(&set) {
        sets.push(set);
    }
    members.iter().try_for_each(|member| resolve_one(member, load, sets))
}

fn names() -> Vec<String> {
    project::files_in(&project::path(FOLDER), "txt")
        .iter()
        .map(|path| project::stem(path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{BASE, CI, FULL, LINT, Set, names, resolve, resolve_one};

    fn set(name: &str, text: &str) -> Set {
        Set { name: name.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn groups_become_their_members_once() {
        let load = |name: &str| {
            Ok(match name {
                "all" => set("all", "# all\n-r few.txt\n-r torch.txt\n"),
                "few" => set("few", "-r jax.txt\n-r torch.txt\n"),
                package => set(package, "# one\npackage==1\n"),
            })
        };
        let mut sets = Vec::new();
        resolve_one("all", &load, &mut sets).unwrap();
        let names: Vec<_> = sets.iter().map(|set| &set.name[..]).collect();
        assert_eq!(names, ["jax", "torch"]);
    }

    #[test]
    fn the_first_comment_is_the_title() {
        assert_eq!(set("torch", "# torch: large\ntorch==2\n").title(), "torch: large");
        assert_eq!(set("torch", "torch==2\n").title(), "torch");
    }

    #[test]
    fn every_file_has_a_title_and_every_group_resolves() {
        for name in names() {
            assert!(Set::load(&name).unwrap().title().starts_with(&format!("{name}: ")), "{name}");
        }
        assert!(!resolve([BASE, LINT, CI, FULL]).unwrap().is_empty());
    }

    #[test]
    fn an_unknown_set_is_refused_by_name() {
        assert!(resolve(["troch"]).unwrap_err().message().contains("`troch`"));
    }
}
