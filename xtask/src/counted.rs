//! Steps that run tests: their outcomes, and the sum of what the test runners count.
//! Which runners there are does not belong here.
//! Invariant: a step that fails before it counts anything counts as one failed test.

use std::process::Command;

use crate::command;
use crate::failure::{Failure, Result};
use crate::steps::Steps;
use crate::tally::Tally;

/// Steps with a sum.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    steps: Steps,
    sum: Tally,
}

impl Counted {
    /// Runs one step, which adds what it counts to the tally.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce(&mut Tally) -> Result) {
        let mut tally = Tally::default();
        let went_well = self.steps.check(name, || work(&mut tally));
        if !went_well && tally.failed == 0 {
            tally += Tally::FAILED;
        }
        self.sum += tally;
    }

    /// Notes what was left out.
    pub(crate) fn skip(&mut self, name: &str, reason: impl Into<String>) {
        self.steps.skip(name, reason);
    }

    /// Prints the summary, and the sum as the last line.
    pub(crate) fn finish(&self) -> Result {
        let result = self.steps.finish();
        println!("\n{}", self.sum);
        result
    }
}

/// Runs a test runner and adds what its lines tell.
pub(crate) fn run_tests(
    runner: &mut Command,
    read: fn(&str) -> Option<Tally>,
    tally: &mut Tally,
) -> Result {
    let mut found = false;
    let result = command::watch(runner, |line| {
        if let Some(counted) = read(line) {
            *tally += counted;
            found = true;
        }
    })?;
    result?;
    if found { Ok(()) } else { Err(Failure::new("no test ran")) }
}

#[cfg(test)]
mod tests {
    use super::Counted;
    use crate::failure::Failure;
    use crate::tally::Tally;

    #[test]
    fn a_failure_is_counted_once() {
        let mut counted = Counted::default();
        counted.step("builds nothing", |_| Err(Failure::new("broken")));
        counted.step("finds a failed test", |tally| {
            *tally += Tally::FAILED;
            Err(Failure::new("one test failed"))
        });
        counted.step("is right", |tally| {
            *tally += Tally::PASSED;
            Ok(())
        });
        assert_eq!(counted.sum, Tally { passed: 1, failed: 2, skipped: 0 });
        assert!(counted.finish().is_err());
    }
}
