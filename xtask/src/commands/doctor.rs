//! `cargo xtask doctor`: whether frameworks conform to DLPack.
//! The checks belong to the Python package in `doctor/`.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::args::Args;
use crate::bench::build::Workshop;
use crate::bench::libraries;
use crate::command;
use crate::commands::setup;
use crate::failure::{Failure, Result};
use crate::manifest::WHEEL;
use crate::project;
use crate::python;
use crate::requirements::{self, BASE, FULL, Set};
use crate::venv::Venv;
use crate::wheel;

/// Installs every framework first.
const EVERYTHING: &str = "--full";
/// The same, in an environment of its own, and writes the page.
const REPORT: &str = "--report";
/// The command that the page names.
const COMMAND: &str = "DLPACK_DOCTOR_COMMAND";
/// Names the Python of the page; otherwise the newest that every framework supports, if it is
/// on the search path.
const CHOICE: &str = "DLBRIDGE_DOCTOR_PYTHON";
const NEWEST: &str = "python3.13";
/// The findings of the last page, and what is written from the new ones.
const FINDINGS: &str = "docs/doctor.json";
const PAGES: [(&str, &str); 3] =
    [("--markdown", "docs/doctor.md"), ("--html", "docs/doctor.html"), ("--json", FINDINGS)];
/// What the page does not have.
const NOTE: &str =
    "polars and pandas have no __dlpack__, and CuPy needs a GPU: they are not examined";
/// The objects of other libraries that the page has: the factories of their benchmarks.
const OBJECTS: [(&str, &str); 3] =
    [("dlpark", "make_exporter"), ("nanobind", "make"), ("pyo3-dlpack", "make_exporter")];

/// Builds the wheel and runs the doctor, which gets all arguments that are not ours.
pub(crate) fn run(mut args: Args) -> Result {
    let mut with = args.list(setup::WITH)?;
    if args.flag(REPORT) {
        return report(&args.rest());
    }
    if args.flag(EVERYTHING) {
        with.push(FULL.to_owned());
    }
    let venv = setup::ready(&with)?;
    wheel::build_and_install(&venv, WHEEL)?;
    command::run(doctor(&venv, &[])?.args(args.rest()))
}

/// Examines every framework and the objects of other libraries, and writes the pages.
fn report(rest: &[String]) -> Result {
    let venv = newest()?;
    for set in requirements::resolve([FULL, libraries::REQUIREMENTS[0]])? {
        venv.install(&set)?;
    }
    wheel::build_and_install(&venv, WHEEL)?;
    let workshop = Workshop::open(&venv)?;
    let mut doctor = doctor(&venv, &[workshop.folder()])?;
    doctor
        .env(COMMAND, format!("cargo xtask doctor {REPORT}"))
        .args(["--exit-zero", "--note", NOTE])
        .args(rest);
    let findings = project::path(FINDINGS);
    if findings.exists() {
        doctor.arg("--since").arg(&findings);
    }
    for (flag, file) in PAGES {
        doctor.arg(flag).arg(project::path(file));
    }
    doctor.arg("installed");
    for library in &libraries::PEERS {
        let Some((name, factory)) = OBJECTS.iter().find(|(name, _)| *name == library.name) else {
            continue;
        };
        workshop.build(library)?;
        let version = workshop.version(library).unwrap_or_default();
        doctor.arg(format!("{name} {version}=bench_{}:{factory}", library.module));
    }
    command::run(&mut doctor)
}

/// An environment of the newest Python that every framework supports, else the project's own.
fn newest() -> Result<Venv> {
    let python = match python::named_in(CHOICE)? {
        None => python::usable(Path::new(NEWEST)).ok(),
        chosen => chosen,
    };
    let Some(python) = python else { return setup::ready(&[]) };
    let venv = Venv::beside(&project::target_folder()?.join("doctor"), python)?;
    venv.install(&Set::load(BASE)?)?;
    Ok(venv)
}

/// The doctor of this repository, with more folders to import from.
fn doctor(venv: &Venv, folders: &[&Path]) -> Result<Command> {
    let own = project::path("doctor");
    let path = env::join_paths([&*own].iter().chain(folders))
        .map_err(|error| Failure::new(format!("cannot name the folders to Python: {error}")))?;
    let mut doctor = venv.run_python();
    doctor.env("PYTHONPATH", path).args(["-m", "dlpack_doctor"]);
    Ok(doctor)
}
