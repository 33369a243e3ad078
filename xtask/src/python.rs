//! Finding a Python to make the virtual environment with.
//! What is installed into it does not belong here.

use std::env;
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
/// Prints the version, whether virtual environments can be made, and where Python is installed.
const QUESTIONS: &str = "\
import importlib.util, sys
print(*sys.version_info[:2])
print(all(map(importlib.util.find_spec, ('venv', 'ensurepip'))))
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
    /// The folder of the installation, the same for its virtual environments.
    installation: PathBuf,
}

impl Facts {
    /// A text that differs for two Pythons.
    pub(crate) fn signature(&self) -> String {
        format!("{}.{} {}", self.version.0, self.version.1, self.installation.display())
    }
}

/// The Python that the user chose by [`CHOICE`], if one was chosen.
pub(crate) fn chosen() -> Result<Option<Python>> {
    let Some(program) = env::var_os(CHOICE).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let program = PathBuf::from(program);
    let python = usable(&program)
        .map_err(|problem| Failure::new(format!("{CHOICE}={}: {problem}", program.display())))?;
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

/// A Python that will do, or what is wrong with it.
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
        installation: lines.next()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Facts, parse};

    #[test]
    fn answers_are_read() {
        let facts =
            Facts { version: (3, 12), makes_venvs: true, installation: "/opt/python".into() };
        assert_eq!(parse("3 12\nTrue\n/opt/python\n"), Some(facts));
        assert_eq!(parse("Python 2.7\n"), None);
    }
}
