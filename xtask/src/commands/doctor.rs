//! `cargo xtask doctor`: whether frameworks keep to the standard.
//! Examining them belongs to the Python package (`dlbridge.doctor`).

use crate::args::Args;
use crate::command;
use crate::commands::setup;
use crate::failure::Result;
use crate::manifest::WHEEL;
use crate::project;
use crate::requirements::FULL;
use crate::wheel;

/// Installs every framework first.
const EVERYTHING: &str = "--full";
/// The same, and writes what is found to the docs.
const REPORT: &str = "--report";
/// What the report says that it was made by.
const COMMAND: &str = "DLBRIDGE_DOCTOR_COMMAND";

/// Builds the wheel and runs `dlbridge.doctor`, which gets all arguments that are not ours.
pub(crate) fn run(mut args: Args) -> Result {
    let mut with = args.list(setup::WITH)?;
    let report = args.flag(REPORT);
    if args.flag(EVERYTHING) || report {
        with.push(FULL.to_owned());
    }
    let venv = setup::ready(&with)?;
    wheel::build_and_install(&venv, WHEEL)?;
    let mut doctor = venv.run_python();
    doctor.args(["-m", "dlbridge", "doctor"]).args(args.rest());
    if report {
        doctor.env(COMMAND, format!("cargo xtask doctor {REPORT}"));
        for (flag, file) in [("--markdown", "docs/doctor.md"), ("--html", "docs/doctor.html")] {
            doctor.arg(flag).arg(project::path(file));
        }
    }
    command::run(&mut doctor)
}
