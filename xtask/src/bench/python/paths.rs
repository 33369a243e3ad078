//! `cargo xtask bench python`: every path through every library, in one table.
//! Invariant: a library or framework that cannot be measured is named with the reason.

use std::path::Path as File;

use crate::args::Args;
use crate::bench::baseline::Baseline;
use crate::bench::build::Workshop;
use crate::bench::libraries::{FLOOR, Library, OURS, PEERS, REQUIREMENTS};
use crate::bench::measure::Bench;
use crate::bench::paths::{FRAMEWORKS, PATHS, WAYS_IN};
use crate::bench::results::Results;
use crate::bench::table::Table;
use crate::bench::{machine, report};
use crate::commands::setup;
use crate::failure::{Failure, Result};
use crate::requirements;
use crate::steps::{Outcome, Steps};
use crate::venv::Venv;

/// The frameworks whose paths are held against the checked-in counts: quick to start.
const CHECKED: [&str; 2] = ["numpy", "torch"];

/// Measures, and writes what is asked for.
pub(crate) fn run(mut args: Args) -> Result {
    let with = args.list(setup::WITH)?;
    let files = args.list("--json")?;
    let quick = args.flag("--quick");
    let write = args.flag("--write");
    args.finish()?;
    machine::check_system()?;
    let peers: Vec<_> = if quick { Vec::new() } else { PEERS.iter().collect() };
    let mut results = Results::default();
    let venv = ready(&with, &peers, &mut results)?;
    let mut steps = Steps::default();
    let libraries = build(&venv, &peers, &mut steps, &mut results)?;
    let workshop = Workshop::open(&venv)?;
    let bench = Bench { venv: &venv, modules: workshop.folder(), libraries: &libraries };
    for framework in FRAMEWORKS {
        steps.step(&format!("time {framework}"), || bench.time(framework, &mut results));
        if results.versions.contains_key(framework) {
            count(&bench, framework, &mut steps, &mut results);
        }
    }
    let went_well = steps.finish();
    print(&results, &libraries);
    for file in files {
        report::write_json(File::new(&file), &results, &PATHS, &libraries)?;
    }
    if write {
        report::write_section("Python", &page(&results, &libraries, &machine::describe(&venv)))?;
    }
    went_well
}

/// Counts the floor and dlbridge alone, and fails where dlbridge adds more to the floor than the
/// checked-in counts say.
/// `--write` checks the counts in instead.
pub(crate) fn check(mut args: Args) -> Result {
    let with = args.list(setup::WITH)?;
    let write = args.flag("--write");
    args.finish()?;
    let mut steps = Steps::default();
    steps.step("counts of instructions", || match obstacle() {
        Some(reason) if write => Err(Failure::new(reason)),
        Some(reason) => Ok(Outcome::Skipped(reason)),
        None => compare(&setup::ready(&with)?, write),
    });
    steps.finish()
}

/// Why nothing can be counted here, if nothing can.
fn obstacle() -> Option<String> {
    let other_system = machine::check_system().err().map(|failure| failure.message().to_owned());
    other_system.or_else(|| machine::lacks_valgrind().map(str::to_owned))
}

fn compare(venv: &Venv, write: bool) -> Result<Outcome> {
    let workshop = Workshop::open(venv)?;
    let libraries = [&FLOOR, &OURS];
    workshop.meter()?;
    libraries.iter().try_for_each(|library| workshop.build(library))?;
    let bench = Bench { venv, modules: workshop.folder(), libraries: &libraries };
    let mut results = Results::default();
    for framework in CHECKED {
        println!("counting the paths of {framework}");
        bench.count(framework, &mut results)?;
    }
    println!("\n{}", Table::of(&results, &PATHS, &libraries).text());
    let measured = Baseline::of(&results);
    if write {
        measured.save()?;
        return Ok(Outcome::Done);
    }
    let worse = Baseline::load()?.worse(&measured);
    if worse.is_empty() { Ok(Outcome::Done) } else { Err(Failure::new(worse.join("\n       "))) }
}

/// The environment with what the peers need, as far as it can be installed.
fn ready(with: &[String], peers: &[&Library], results: &mut Results) -> Result<Venv> {
    let venv = setup::ready(with)?;
    if !peers.is_empty() {
        let needed = requirements::resolve(REQUIREMENTS)?;
        setup::install_each(&venv, &needed).into_iter().for_each(|problem| results.note(problem));
    }
    Ok(venv)
}

/// Builds everything, and gives the libraries that could be built, the floor first.
fn build<'a>(
    venv: &Venv,
    peers: &[&'a Library],
    steps: &mut Steps,
    results: &mut Results,
) -> Result<Vec<&'a Library>> {
    let workshop = Workshop::open(venv)?;
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

fn count(bench: &Bench<'_>, framework: &str, steps: &mut Steps, results: &mut Results) {
    let name = format!("count {framework}");
    if let Some(reason) = machine::lacks_valgrind() {
        results.note(format!("instructions are not counted: {reason}"));
        steps.skip(&name, reason);
        return;
    }
    steps.check(&name, || bench.count(framework, results));
}

fn print(results: &Results, libraries: &[&Library]) {
    println!("\n{}", Table::of(results, &PATHS, libraries).text());
    let ways_in = Table::of_floor(results, &WAYS_IN);
    if !ways_in.is_empty() {
        println!("ways to the memory of a NumPy array, written in C:\n\n{}", ways_in.text());
    }
    for note in &results.notes {
        println!("{note}");
    }
}

/// The section of the page of benchmarks.
fn page(results: &Results, libraries: &[&Library], machine: &[String]) -> String {
    let versions: Vec<_> =
        results.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let notes: String = results.notes.iter().map(|note| format!("- {note}\n")).collect();
    format!(
        "`cargo xtask bench python --write` wrote this section. [benches/python](../benches/python/README.md) says what\n\
         is counted: one call of a library less an empty one, with arrays of `float32[2, 3]`. `x floor` and `budget` are\n\
         instructions as multiples of the floor's. A library that a path does not list has no such path.\n\n\
         {}\n\n{}\n\n{}\n{notes}\n### Ways to the memory of a NumPy array\n\n\
         Written in C, next to the capsule: each makes what an owning tensor needs, reads and releases.\n\n{}",
        machine.join(". "),
        versions.join(", "),
        Table::of(results, &PATHS, libraries).markdown(),
        Table::of_floor(results, &WAYS_IN).markdown(),
    )
}
