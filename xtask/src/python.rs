//! Finding a Python to make the virtual environment with.
//! What is installed into it does not belong here.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::command;
use crate::failure::{Failure, Result};

/// The oldest Python that the wheel supports.
const OLDEST: (u32, u32) = (3, 10);
/// Names the Python to use; nothing else is tried then.
pub(crate) const CHOICE: &str = "DLBRIDGE_PYTHON";
/// Tried in this order otherwise.
const NAMES: &[&str] =
    &["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python"];
/// Prints the version, whether virtual environments can be made, whether the build is
/// free-threaded, and where Python is installed.
const QUESTIONS: &str = "\
import importlib.util, sys, sysconfig
print(*sys.version_info[:2])
print(all(map(importlib.util.find_spec, ('venv', 'ensurepip'))))
print(bool(sysconfig.get_config_var('Py_GIL_DISABLED')))
print(sys.base_prefix)
";

/// A Python that can make virtual environments.
#[derive(Debug)]
pub(crate) struct Python {
    /// The program.
    pub(crate) program: PathBuf,
    /// What it says of itself.
    pub(crate) facts: Facts,
}

/// What a Python says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Major and minor version.
    pub(crate) version: (u32, u32),
    makes_venvs: bool,
    /// Whether the build has no global lock.
    pub(crate) free_threaded: bool,
    /// The folder of the installation, the same for its virtual environments.
    installation: PathBuf,
}

impl Facts {
    /// A text that differs for two Pythons.
    pub(crate) fn signature(&self) -> String {
        format!("{self} {}", self.installation.display())
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.free_threaded { ", free-threaded" } else { "" };
        write!(f, "Python {}.{}{kind}", self.version.0, self.version.1)
    }
}

/// The Python that the user chose by [`CHOICE`], if one was chosen.
pub(crate) fn chosen() -> Result<Option<Python>> {
    named_in(CHOICE)
}

/// The Python that a variable of the environment names, if it names one.
pub(crate) fn named_in(variable: &str) -> Result<Option<Python>> {
    let Some(program) = env::var_os(variable).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let program = PathBuf::from(program);
    let python = usable(&program)
        .map_err(|problem| Failure::new(format!("{variable}={}: {problem}", program.display())))?;
    Ok(Some(python))
}

/// The chosen Python, else the first usable one on the search path.
pub(crate) fn find() -> Result<Python> {
    if let Some(python) = chosen()? {
        return Ok(python);
    }
    let mut problems = String::new();
    for name in NAMES {
        match usable(Path::new(name)) {
            Ok(python) => return Ok(python),
            Err(problem) => problems += &format!("\n  {name}: {problem}"),
        }
    }
    Err(Failure::new(format!(
        "no usable Python found:{problems}\n\
         Install Python {}.{} or newer with its venv module (Debian and Ubuntu: the package \
         python3-venv), or name one in {CHOICE}.",
        OLDEST.0, OLDEST.1
    )))
}

/// Asks a Python about itself.
pub(crate) fn ask(program: &Path) -> Option<Facts> {
    parse(&command::output(command::program(program).args(["-c", QUESTIONS])).ok()?)
}

/// A Python that environments can be made with; otherwise, what is wrong with it.
pub(crate) fn usable(program: &Path) -> std::result::Result<Python, String> {
    let facts = ask(program).ok_or("does not run")?;
    let (major, minor) = facts.version;
    if facts.version < OLDEST {
        return Err(format!("is {major}.{minor}, too old"));
    }
    if !facts.makes_venvs {
        return Err(format!("is {major}.{minor} without the venv module"));
    }
    Ok(Python { program: program.to_owned(), facts })
}

fn parse(answers: &str) -> Option<Facts> {
    let mut lines = answers.lines();
    let (major, minor) = lines.next()?.split_once(' ')?;
    Some(Facts {
        version: (major.parse().ok()?, minor.parse().ok()?),
        makes_venvs: lines.next()? == "True",
        free_threaded: lines.next()? == "True",
        installation: lines.next()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Facts, parse};

    #[test]
    fn answers_are_read() {
        let facts = Facts {
            version: (3, 14),
            makes_venvs: true,
            free_threaded: true,
            installation: "/opt/python".into(),
        };
        assert_eq!(facts.to_string(), "Python 3.14, free-threaded");
        assert_eq!(parse("3 14\nTrue\nTrue\n/opt/python\n"), Some(facts));
        assert_eq!(parse("Python 2.7\n"), None);
    }
}
