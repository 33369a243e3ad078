//! Miri over the Rust tests, one program after the other, until all are done or time is up.
//! Invariant: what time did not suffice for is named.

use std::time::{Duration, Instant};

use super::{CORE_FEATURES, Tests, cargo, nightly, skipped};
use crate::command::{self, Ended};
use crate::failure::Result;
use crate::steps::Outcome;

/// Tree Borrows: a cell over memory that a Rust owner lent immutably is never written, which that
/// model allows and Stacked Borrows does not (`raw/elements.rs`).
const FLAGS: &str = "-Zmiri-tree-borrows -Zmiri-strict-provenance -Zmiri-disable-isolation";
/// So many schedules of the threads are tried where something is shared without a lock.
const SCHEDULES: &str = "-Zmiri-many-seeds=0..16";
/// Of property tests, even fewer cases than for the other tools.
const CASES: &str = "4";

/// No program runs for more than this part of the time.
const SHARE: u32 = 4;

/// A test program, and what cargo needs to know to build it.
struct Program {
    name: String,
    words: Vec<String>,
    flags: String,
}

/// Runs the tests, those of the core first, for no longer than `limit`.
pub(crate) fn run(limit: Duration) -> Result<Outcome> {
    let nightly = match nightly() {
        Ok(nightly) => nightly,
        Err(skipped) => return Ok(skipped),
    };
    if !command::succeeds(&mut cargo(&nightly, &["miri", "--version"])) {
        return Ok(skipped("no Miri: rustup +nightly component add miri"));
    }
    let started = Instant::now();
    let mut unfinished = Vec::new();
    let programs = programs()?;
    for (index, program) in programs.iter().enumerate() {
        let left = limit.saturating_sub(started.elapsed());
        println!(
            "-- {} of {}: {} ({} s left)",
            index + 1,
            programs.len(),
            program.name,
            left.as_secs()
        );
        if left.is_zero() {
            unfinished.push(&*program.name);
            continue;
        }
        let mut cargo = cargo(&nightly, &["miri", "test"]);
        cargo.args(&program.words).env("MIRIFLAGS", &program.flags).env("PROPTEST_CASES", CASES);
        // One slow program does not take the time of all others.
        match command::run_for(&mut cargo, left.min(limit / SHARE))? {
            Ended::ByItself => {}
            Ended::Stopped => unfinished.push(&*program.name),
        }
    }
    if unfinished.is_empty() {
        return Ok(Outcome::Done);
    }
    let (done, names) = (programs.len() - unfinished.len(), unfinished.join(", "));
    let minutes = limit.as_secs() / 60;
    Ok(skipped(format!(
        "{done} of {} programs passed in {minutes} minutes; not finished: {names} \
         (--minutes N gives more time)",
        programs.len()
    )))
}

/// The core's tests, what is shared without a lock, and the adapters' tests, which take the longest
/// to build.
fn programs() -> Result<Vec<Program>> {
    let Tests { core, adapters } = Tests::find()?;
    let of_core = |which: Vec<String>, name: &str| {
        let mut words = words("--package dlbridge --features");
        words.push(CORE_FEATURES.to_owned());
        words.extend(which);
        Program { name: name.to_owned(), words, flags: FLAGS.to_owned() }
    };
    let mut programs = vec![of_core(words("--lib"), "dlbridge")];
    programs.extend(core.iter().map(|name| of_core(words(&format!("--test {name}")), name)));
    programs.push(Program {
        name: "dlbridge-capi".to_owned(),
        words: words("--package dlbridge-capi --lib"),
        flags: format!("{FLAGS} {SCHEDULES}"),
    });
    programs.extend(adapters.iter().map(|name| Program {
        name: name.clone(),
        words: words(&format!("--package dlbridge --all-features --test {name}")),
        flags: FLAGS.to_owned(),
    }));
    Ok(programs)
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}
