//! `cargo xtask ci`: what CI runs, on a machine with nothing but cargo and Python.

use crate::args::Args;
use crate::bench::python;
use crate::commands::{fuzz, lint, setup, test};
use crate::failure::{Failure, Result};
use crate::requirements::{self, CI};

/// Installs the frameworks, checks, and tests also when a check has failed. Instructions are
/// counted where valgrind is installed, and each fuzz target runs for a moment.
pub(crate) fn run(args: Args) -> Result {
    args.finish()?;
    let frameworks = requirements::resolve([CI])?;
    let venv = setup::ready(&[])?;
    let missing = setup::install_each(&venv, &frameworks);
    let linted = lint::run(Args::default());
    for problem in &missing {
        println!("\nWARNING: {problem}\nWARNING: its tests will be skipped");
    }
    let counted = python::check(Args::default());
    let tested = test::run_everything(fuzz::short);
    let linted = linted.map_err(|_| Failure::new("lint failed, as its summary says"));
    let counted = counted.map_err(|_| Failure::new("bench --check failed, as its summary says"));
    tested.and(linted).and(counted)
}
