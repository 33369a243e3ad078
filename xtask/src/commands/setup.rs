//! `cargo xtask setup`: the virtual environment and what is asked for in it.

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::requirements::{self, BASE, Set};
use crate::venv::Venv;

/// The flag that names sets of packages.
pub(crate) const WITH: &str = "--with";

/// Makes the environment and installs everything that is named after `--with`.
pub(crate) fn run(mut args: Args) -> Result {
    let sets = requirements::resolve(&args.list(WITH)?)?;
    args.finish()?;
    let problems = install_each(&base()?, &sets);
    if problems.is_empty() {
        println!(".venv is ready");
        return Ok(());
    }
    Err(Failure::new(problems.join("\n       ")))
}

/// The environment with the base set and all of the named ones.
pub(crate) fn ready(with: &[String]) -> Result<Venv> {
    let sets = requirements::resolve(with)?;
    let venv = base()?;
    sets.iter().try_for_each(|set| venv.install(set))?;
    Ok(venv)
}

/// Installs sets one after the other and tells which could not be installed.
pub(crate) fn install_each(venv: &Venv, sets: &[Set]) -> Vec<String> {
    let problem = |set: &Set| {
        let failure = venv.install(set).err()?;
        Some(format!("{} could not be installed: {}", set.name, failure.message()))
    };
    sets.iter().filter_map(problem).collect()
}

fn base() -> Result<Venv> {
    let venv = Venv::open()?;
    venv.install(&Set::load(BASE)?)?;
    Ok(venv)
}
