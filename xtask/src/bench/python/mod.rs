//! `cargo xtask bench python`: what is measured in Python.
//! Each part has its script in `benches/python`; what they need is built once for all.
//! Invariant: a library or framework that cannot be measured is named with the reason.

mod parts;
mod paths;

use std::path::PathBuf;

use crate::args::Args;
use crate::bench::build::Workshop;
use crate::bench::libraries::{FLOOR, Library, OURS, PEERS, REQUIREMENTS};
use crate::bench::machine;
use crate::bench::results::Results;
use crate::commands::setup;
use crate::failure::{Failure, Result};
use crate::requirements;
use crate::steps::{Outcome, Steps};
use crate::venv::Venv;

pub(crate) use paths::check;

/// What can be measured.
const PARTS: [&str; 3] = ["paths", "sizes", "threads"];

/// What is to be measured, and kept.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// The part, where one is named.
    part: Option<&'static str>,
    /// Sets of Python packages to install first.
    with: Vec<String>,
    /// Files that all numbers of the paths are written to.
    files: Vec<String>,
    /// Another Python than that of `.venv`.
    python: Option<PathBuf>,
    /// Whether other libraries are left out.
    is_quick: bool,
    /// Whether the page of benchmarks is written.
    write: bool,
}

impl Options {
    /// Takes the arguments of `bench` and of `bench python`.
    pub(crate) fn take(args: &mut Args) -> Result<Self> {
        let pythons = args.list("--python")?;
        Ok(Self {
            part: None,
            with: args.list(setup::WITH)?,
            files: args.list("--json")?,
            python: pythons.last().map(PathBuf::from),
            is_quick: args.flag("--quick"),
            write: args.flag("--write"),
        })
    }

    /// Whether the page of benchmarks is written.
    pub(crate) fn write(&self) -> bool {
        self.write
    }
}

/// What everything is measured with.
#[derive(Debug)]
struct Tools<'a> {
    workshop: &'a Workshop<'a>,
    libraries: &'a [&'static Library],
    options: &'a Options,
}

/// Measures all parts, or the one that is named.
pub(crate) fn run(mut args: Args) -> Result {
    let mut options = Options::take(&mut args)?;
    options.part = args.choice(&PARTS)?;
    args.finish()?;
    let mut steps = Steps::default();
    measure(&options, &mut steps)?;
    steps.finish()
}

/// Measures in steps.
pub(crate) fn measure(options: &Options, steps: &mut Steps) -> Result {
    machine::check_system()?;
    let venv = match &options.python {
        Some(python) => Venv::apart("bench-venv", python)?,
        None => setup::ready(&options.with)?,
    };
    let peers: Vec<_> = if options.is_quick { Vec::new() } else { PEERS.iter().collect() };
    let mut results = Results::default();
    if !peers.is_empty() {
        let needed = requirements::resolve(REQUIREMENTS)?;
        setup::install_each(&venv, &needed).into_iter().for_each(|problem| results.note(problem));
    }
    let workshop = Workshop::open(&venv)?;
    let libraries = build(&workshop, &peers, steps, &mut results)?;
    let tools = Tools { workshop: &workshop, libraries: &libraries, options };
    for part in PARTS.into_iter().filter(|part| options.part.is_none_or(|named| named == *part)) {
        match part {
            "paths" => paths::measure(&tools, &mut results, steps)?,
            "sizes" => {
                steps.check("measure sizes in Python", || parts::sizes(&tools));
            }
            _ => {
                steps.check("measure threads in Python", || parts::threads(&tools));
            }
        }
    }
    Ok(())
}

/// Builds everything, and gives the libraries that could be built, the floor first.
fn build(
    workshop: &Workshop<'_>,
    peers: &[&'static Library],
    steps: &mut Steps,
    results: &mut Results,
) -> Result<Vec<&'static Library>> {
    let needed = steps.check("build the meter", || workshop.meter())
        & steps.check("build the floor", || workshop.build(&FLOOR))
        & steps.check("build dlbridge", || workshop.build(&OURS));
    if !needed {
        return Err(Failure::new("nothing can be measured without these"));
    }
    let mut built = vec![&FLOOR, &OURS];
    for peer in peers {
        let name = format!("build {}", peer.name);
        steps.step(&name, || match workshop.build(peer) {
            Ok(()) => {
                built.push(peer);
                Ok(Outcome::Done)
            }
            Err(failure) => {
                results.note(format!("{}: not built: {}", peer.name, failure.message()));
                Ok(Outcome::Skipped(failure.message().to_owned()))
            }
        });
        if let Some(version) = workshop.version(peer) {
            results.versions.insert(peer.name.to_owned(), version);
        }
    }
    Ok(built)
}
