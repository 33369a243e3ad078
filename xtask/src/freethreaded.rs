//! A free-threaded Python beside the environment's own, and its environment.
//! What runs there does not belong here.

use std::path::Path;

use crate::command;
use crate::failure::{Failure, Result};
use crate::project;
use crate::python::{self, Python};
use crate::requirements::{BASE, Set};
use crate::venv::Venv;

/// Names the free-threaded Python to use; nothing else is tried then.
pub(crate) const CHOICE: &str = "DLBRIDGE_FREE_THREADED_PYTHON";
/// Builds one where there is none.
const BUILD: &str = "scripts/get-python-freethreaded.sh";
/// The first version that PyO3 and NumPy support without the lock.
const NAMES: &[&str] = &["python3.14t"];
/// Holds the Python that was built, the environment, and what is built for it.
const FOLDER: &str = "free-threaded";

/// The environment of a free-threaded Python, with the base set; otherwise, why there is none.
pub(crate) fn environment() -> Result<std::result::Result<Venv, String>> {
    let folder = project::target_folder()?.join(FOLDER);
    let python = match find(&folder)? {
        Ok(python) => python,
        Err(reason) => return Ok(Err(reason)),
    };
    let venv = Venv::beside(&folder, python)?;
    venv.install(&Set::load(BASE)?)?;
    Ok(Ok(venv))
}

/// The Python that the user chose, one on the search path, else one that is built here.
fn find(folder: &Path) -> Result<std::result::Result<Python, String>> {
    if let Some(python) = python::named_in(CHOICE)? {
        if python.facts.free_threaded {
            return Ok(Ok(python));
        }
        let program = python.program.display();
        return Err(Failure::new(format!("{CHOICE}={program} is {}", python.facts)));
    }
    let usable = |name: &&str| python::usable(Path::new(name)).ok();
    if let Some(python) = NAMES.iter().find_map(usable).filter(|found| found.facts.free_threaded) {
        return Ok(Ok(python));
    }
    let prefix = folder.join("python");
    let built = command::run(command::program("sh").arg(BUILD).arg(&prefix));
    let python = match built {
        Ok(()) => python::usable(&prefix.join("bin/python3")),
        Err(failure) => Err(failure.message().to_owned()),
    };
    Ok(python.map_err(|reason| {
        format!("no {} on the search path, and none built ({reason})", NAMES.join(" or "))
    }))
}
