//! A virtual environment, `.venv` most of all: made once, filled as asked, entered by other programs.
//! What the sets of requirements are does not belong here.
//! Invariant: a set's stamp holds the text that was installed, and is written last.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::failure::{Failure, Result};
use crate::project;
use crate::python::{self, Facts, Python};
use crate::requirements::{BASE, Set};

/// Where the project's own environment lies.
const FOLDER: &str = ".venv";

/// A virtual environment that runs.
#[derive(Debug)]
pub(crate) struct Venv {
    folder: PathBuf,
    facts: Facts,
    /// Where cargo builds for it, if not where it always does.
    target: Option<PathBuf>,
}

impl Venv {
    /// The project's environment, made anew when it does not run or is not of the chosen Python.
    pub(crate) fn open() -> Result<Self> {
        let folder = project::path(FOLDER);
        let facts = match (python::ask(&interpreter(&folder)), python::chosen()?) {
            (Some(facts), None) => facts,
            (Some(facts), Some(python)) if facts == python.facts => facts,
            (_, Some(python)) => create(&folder, python)?,
            (None, None) => create(&folder, python::find()?)?,
        };
        Ok(Self { folder, facts, target: None })
    }

    /// An environment of another Python, below a folder that holds what is built for it, too: one
    /// folder for two Pythons would be built anew at every change between them.
    pub(crate) fn beside(folder: &Path, python: Python) -> Result<Self> {
        let target = Some(folder.join("target"));
        let folder = folder.join("venv");
        let facts = match python::ask(&interpreter(&folder)) {
            Some(facts) if facts == python.facts => facts,
            _ => create(&folder, python)?,
        };
        Ok(Self { folder, facts, target })
    }

    /// What its Python says of itself.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The folder for what is built for it.
    pub(crate) fn target_folder(&self) -> Result<PathBuf> {
        self.target.clone().map_or_else(project::target_folder, Ok)
    }

    /// An environment of another Python, in a folder of that name among what is built, with the
    /// base set.
    pub(crate) fn apart(name: &str, program: &Path) -> Result<Self> {
        let python = python::usable(program)
            .map_err(|problem| Failure::new(format!("{}: {problem}", program.display())))?;
        let venv = Self::beside(&project::target_folder()?.join(name), python)?;
        venv.install(&Set::load(BASE)?)?;
        Ok(venv)
    }

    /// Whether it is not the project's own, [`open`](Self::open).
    pub(crate) fn is_apart(&self) -> bool {
        self.target.is_some()
    }

    /// The environment's Python.
    pub(crate) fn python(&self) -> PathBuf {
        interpreter(&self.folder)
    }

    /// A program that finds this environment's Python, whichever way it looks for one.
    ///
    /// All cargo commands that build PyO3 go through here: other variables would build it anew.
    pub(crate) fn program(&self, name: impl AsRef<Path>) -> Command {
        let mut program = command::program(name);
        program
            .env("VIRTUAL_ENV", &self.folder)
            .env("PATH", prepended(&programs(&self.folder), "PATH"))
            .env("PYO3_PYTHON", self.python())
            // The same path may become another Python; PyO3 builds anew when this changes.
            .env("PYO3_ENVIRONMENT_SIGNATURE", self.facts.signature())
            .env(python::CHOICE, self.python())
            .env_remove("PYTHONHOME");
        if let Some(target) = &self.target {
            program.env("CARGO_TARGET_DIR", target);
        }
        program
    }

    /// The environment's Python, as a program to run.
    pub(crate) fn run_python(&self) -> Command {
        self.program(self.python())
    }

    /// Whether a set is installed as its file now says.
    pub(crate) fn has(&self, set: &Set) -> bool {
        fs::read_to_string(self.stamp(set)).is_ok_and(|text| text == set.text)
    }

    /// Installs a set unless it is there already.
    pub(crate) fn install(&self, set: &Set) -> Result {
        if self.has(set) {
            return Ok(());
        }
        println!("\ninstalling {}", set.title());
        let mut pip = self.pip();
        pip.arg("--requirement").arg(set.file());
        if set.name != BASE {
            pip.arg("--constraint").arg(Set::load(BASE)?.file());
        }
        command::run(&mut pip)?;
        project::write(&self.stamp(set), &set.text)
    }

    /// Installs a wheel, without what it depends on, unless the same one is there already.
    pub(crate) fn install_wheel(&self, wheel: &Path) -> Result {
        let built = fs::read(wheel)
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", wheel.display())))?;
        // The name of a wheel starts with that of its package.
        let package = project::stem(wheel).split('-').next().unwrap_or_default().to_owned();
        let stamp = self.notes().join(package + ".whl");
        if fs::read(&stamp).is_ok_and(|installed| installed == built) {
            println!("this wheel is installed already");
            return Ok(());
        }
        command::run(self.pip().args(["--quiet", "--force-reinstall", "--no-deps"]).arg(wheel))?;
        project::write(&stamp, built)
    }

    fn pip(&self) -> Command {
        let mut pip = self.run_python();
        pip.args(["-m", "pip", "install", "--no-input", "--disable-pip-version-check"]);
        pip
    }

    fn stamp(&self, set: &Set) -> PathBuf {
        self.notes().join(format!("{}.txt", set.name))
    }

    fn notes(&self) -> PathBuf {
        self.folder.join("xtask")
    }
}

fn create(folder: &Path, python: Python) -> Result<Facts> {
    println!("making {} with {}", folder.display(), python.facts);
    let mut make = command::program(&python.program);
    command::run(make.args(["-m", "venv", "--clear"]).arg(folder))?;
    Ok(python.facts)
}

fn interpreter(folder: &Path) -> PathBuf {
    programs(folder).join(if cfg!(windows) { "python.exe" } else { "python" })
}

fn programs(folder: &Path) -> PathBuf {
    folder.join(if cfg!(windows) { "Scripts" } else { "bin" })
}

/// A search path with one more folder at its head.
pub(crate) fn prepended(folder: &Path, variable: &str) -> OsString {
    let old = env::var_os(variable).unwrap_or_default();
    let folders = std::iter::once(folder.to_owned())
        .chain(env::split_paths(&old).filter(|path| !path.as_os_str().is_empty()));
    env::join_paths(folders).unwrap_or(old)
}

#[cfg(test)]
mod tests {
    use super::Venv;
    use crate::python::Facts;
    use crate::requirements::Set;

    #[test]
    fn a_changed_set_is_not_installed() {
        let folder = std::env::temp_dir().join(format!("xtask-stamp-{}", std::process::id()));
        let venv = Venv { folder: folder.clone(), facts: Facts::default(), target: None };
        let old = Set { name: "some".to_owned(), text: "numpy==1".to_owned() };
        let new = Set { name: "some".to_owned(), text: "numpy==2".to_owned() };
        assert!(!venv.has(&old));
        crate::project::write(&venv.stamp(&old), &old.text).unwrap();
        assert!(venv.has(&old));
        assert!(!venv.has(&new));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
