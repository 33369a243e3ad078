//! The shared library of the environment's Python, for Rust programs that embed it.
//! Which programs those are does not belong here.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::failure::Result;
use crate::python;
use crate::venv::{Venv, prepended};

/// Prints the library's folder and its name.
const QUESTIONS: &str = "\
import sysconfig
print(sysconfig.get_config_var('LIBDIR') or '')
print(sysconfig.get_config_var('LDLIBRARY') or '')
";

/// Where the system's loader also looks for libraries.
const SEARCH_PATH: &str =
    if cfg!(target_os = "macos") { "DYLD_FALLBACK_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };

/// A library that was looked for.
#[derive(Debug)]
pub(crate) enum Libpython {
    /// It lies in this folder.
    In(PathBuf),
    /// The system finds it by itself.
    Known,
    /// There is none, and why that matters.
    Missing(String),
}

impl Libpython {
    /// Looks for the library of an environment.
    pub(crate) fn of(venv: &Venv) -> Result<Self> {
        if cfg!(windows) {
            return Ok(Self::Known);
        }
        let answers = command::output(venv.run_python().args(["-c", QUESTIONS]))?;
        let mut lines = answers.lines();
        let folder = lines.next().unwrap_or_default();
        let name = lines.next().unwrap_or_default();
        Ok(Self::at(Path::new(folder), name))
    }

    fn at(folder: &Path, name: &str) -> Self {
        let library = folder.join(name);
        if library.is_file() && !name.ends_with(".a") {
            return Self::In(folder.to_owned());
        }
        Self::Missing(format!(
            "this Python has no shared library to link with ({}): install its development \
             package (Debian and Ubuntu: python3-dev), or name another Python in {}",
            library.display(),
            python::CHOICE
        ))
    }

    /// Makes a program find the library.
    pub(crate) fn lend<'a>(&self, program: &'a mut Command) -> &'a mut Command {
        match self {
            Self::In(folder) => program.env(SEARCH_PATH, prepended(folder, SEARCH_PATH)),
            Self::Known | Self::Missing(_) => program,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Libpython;
    use crate::project;

    #[test]
    fn only_an_existing_shared_library_counts() {
        let folder = project::root();
        assert!(matches!(Libpython::at(folder, "Cargo.toml"), Libpython::In(_)));
        assert!(matches!(Libpython::at(folder, "libpython3.so"), Libpython::Missing(_)));
        assert!(matches!(Libpython::at(folder, ""), Libpython::Missing(_)));
    }
}
