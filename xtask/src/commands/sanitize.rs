//! `cargo xtask sanitize`: the tests under tools that see wrong memory accesses, leaks and races.
//! What each tool runs belongs to `sanitize`.
//! Invariant: each tool ran or is listed as skipped with the reason.

use std::time::Duration;

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::sanitize::{address, miri, python, thread, valgrind};
use crate::steps::Steps;

/// The tools, by the words that choose one.
const TOOLS: [&str; 5] = ["address", "python", "thread", "valgrind", "miri"];
/// How long Miri runs, in minutes, unless `--minutes` says otherwise.
const MINUTES: u64 = 30;

/// Runs every tool that there is, or the one that is named.
pub(crate) fn run(mut args: Args) -> Result {
    let minutes = minutes(&args.list("--minutes")?)?;
    let chosen = args.choice(&TOOLS)?;
    args.finish()?;
    let wants = |tool| chosen.is_none_or(|chosen| chosen == tool);
    let mut steps = Steps::default();
    if wants("address") {
        steps.step("AddressSanitizer", address::run);
    }
    if wants("python") {
        steps.step("the Python suite", python::run);
    }
    if wants("thread") {
        steps.step("ThreadSanitizer", thread::run);
    }
    if wants("valgrind") {
        steps.step("valgrind", valgrind::run);
    }
    if wants("miri") {
        steps.step("Miri", || miri::run(minutes));
    }
    steps.finish()
}

fn minutes(given: &[String]) -> Result<Duration> {
    let minutes = match given {
        [] => MINUTES,
        [.., last] => last
            .parse()
            .map_err(|_| Failure::usage(format!("`--minutes {last}`: wanted a number")))?,
    };
    Ok(Duration::from_secs(60 * minutes))
}

#[cfg(test)]
mod tests {
    use super::{MINUTES, minutes};

    #[test]
    fn the_last_number_of_minutes_counts() {
        assert_eq!(minutes(&[]).unwrap().as_secs(), 60 * MINUTES);
        assert_eq!(minutes(&["1".to_owned(), "2".to_owned()]).unwrap().as_secs(), 120);
        assert!(minutes(&["soon".to_owned()]).is_err());
    }
}
