//! Every path through every library, in one table and a chart.
//! Which paths there are belongs to `../paths.rs`.

use std::cmp::Ordering;
use std::path::Path as File;

use super::Tools;
use crate::args::Args;
use crate::bench::baseline::Baseline;
use crate::bench::build::Workshop;
use crate::bench::chart::{Bars, Mark, Panel, Row};
use crate::bench::libraries::{FLOOR, Library, OURS};
use crate::bench::machine;
use crate::bench::measure::Bench;
use crate::bench::paths::{FRAMEWORKS, PATHS, Path, WAYS_IN};
use crate::bench::report::{self, Section};
use crate::bench::results::Results;
use crate::bench::table::Table;
use crate::commands::setup;
use crate::failure::{Failure, Result};
use crate::steps::{Outcome, Steps};
use crate::venv::Venv;

/// The frameworks whose paths are held against the checked-in counts: quick to start.
const CHECKED: [&str; 2] = ["numpy", "torch"];

/// Times and counts all paths; writes what is asked for.
pub(super) fn measure(tools: &Tools<'_>, results: &mut Results, steps: &mut Steps) -> Result {
    let (venv, libraries) = (tools.workshop.venv(), tools.libraries);
    let bench = Bench { venv, modules: tools.workshop.folder(), libraries };
    for framework in FRAMEWORKS {
        steps.step(&format!("time {framework}"), || bench.time(framework, results));
        if results.versions.contains_key(framework) {
            count(&bench, framework, steps, results);
        }
    }
    print(results, libraries);
    for file in &tools.options.files {
        report::write_json(File::new(file), results, &PATHS, libraries)?;
    }
    if tools.options.write() {
        let section = Section {
            title: "Python".to_owned(),
            body: page(results, libraries),
            chart: Some(("paths", chart(results, libraries))),
        };
        report::keep(&section, &machine::describe(venv).join(". "))?;
    }
    Ok(())
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
fn page(results: &Results, libraries: &[&Library]) -> String {
    let versions: Vec<_> =
        results.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let notes: String = results.notes.iter().map(|note| format!("- {note}\n")).collect();
    format!(
        "[benches/python](../benches/python/README.md) says what is counted: one call of a library less an empty one,\n\
         with arrays of `float32[2, 3]`. `x floor` and `budget` are instructions as multiples of the floor's. A library\n\
         that a path does not list has no such path.\n\n\
         {}\n\n{}\n{notes}\n### Ways to the memory of a NumPy array\n\n\
         Written in C, next to the capsule: each makes what an owning tensor needs, reads and releases.\n\n{}",
        versions.join(", "),
        Table::of(results, &PATHS, libraries).markdown(),
        Table::of_floor(results, &WAYS_IN).markdown(),
    )
}

/// The paths that others have, too: ours first, then from the least to the most.
fn chart(results: &Results, libraries: &[&Library]) -> String {
    let panel = |path: &Path| {
        let mark = |library: &&&Library| {
            let value = results.ratio(path.key, library.module)?;
            Some((library.name, Mark { value, is_ours: library.module == OURS.module }))
        };
        let others = libraries.iter().filter(|library| library.module != FLOOR.module);
        let mut marks: Vec<_> = others.filter_map(|library| mark(&library)).collect();
        marks.sort_by(|(_, a), (_, b)| {
            (b.is_ours, a.value).partial_cmp(&(a.is_ours, b.value)).unwrap_or(Ordering::Equal)
        });
        let row = |(name, mark): (&str, Mark)| Row { label: name.to_owned(), marks: vec![mark] };
        let rows: Vec<_> = marks.into_iter().map(row).collect();
        (rows.len() > 1).then(|| Panel { title: path.title.to_owned(), rows, budget: path.budget })
    };
    let bars = Bars {
        title: "What a share costs in Python",
        subtitle: "instructions, times those of the least that an extension in C can do (1); logarithmic",
        panels: PATHS.iter().filter_map(panel).collect(),
        label_width: 110.0,
    };
    bars.svg()
}

#[cfg(test)]
mod tests {
    use super::chart;
    use crate::bench::libraries::{FLOOR, OURS, PEERS};
    use crate::bench::results::tests::compared;

    #[test]
    fn ours_is_the_first_row_and_the_floor_none() {
        let libraries: Vec<_> = [&FLOOR, &OURS].into_iter().chain(&PEERS).collect();
        let svg = chart(&compared(), &libraries);
        let [ours, less, more] =
            [">dlbridge<", ">dlpk<", ">dlpark<"].map(|name| svg.find(name).expect(name));
        assert!(ours < less && less < more && !svg.contains(">floor<"), "{svg}");
        assert!(svg.contains(">budget 1.1<"), "{svg}");
    }
}
