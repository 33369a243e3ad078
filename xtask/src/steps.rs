//! The steps of a long command: a heading and a time for each, a summary at the end.
//! What a step does not belong here. Invariant: a failed step never hides the ones after it.

use std::time::Instant;

use crate::failure::{Failure, Result};

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did what it should.
    Done,
    /// It could not be done here, and why.
    Skipped(String),
    /// It went wrong, and how.
    Failed(String),
}

/// The steps done so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    ended: Vec<(String, Outcome)>,
}

impl Steps {
    /// Runs one step under a heading; tells whether it did not fail.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<Outcome>) -> bool {
        println!("\n== {name} ==");
        let started = Instant::now();
        let outcome =
            work().unwrap_or_else(|failure| Outcome::Failed(failure.message().to_owned()));
        println!("-- {name}: {} ({:.1} s)", describe(&outcome), started.elapsed().as_secs_f32());
        let went_well = !matches!(outcome, Outcome::Failed(_));
        self.ended.push((name.to_owned(), outcome));
        went_well
    }

    /// Runs one step that either succeeds or fails; tells which.
    pub(crate) fn check(&mut self, name: &str, work: impl FnOnce() -> Result) -> bool {
        self.step(name, || work().map(|()| Outcome::Done))
    }

    /// Notes what was left out.
    pub(crate) fn skip(&mut self, name: &str, reason: impl Into<String>) {
        self.ended.push((name.to_owned(), Outcome::Skipped(reason.into())));
    }

    /// Prints what ran, what did not, and why; fails if a step did.
    pub(crate) fn finish(&self) -> Result {
        println!("\n== summary ==");
        for (name, outcome) in &self.ended {
            println!("{name}: {}", describe(outcome));
        }
        let failed = self.ended.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
        if failed { Err(Failure::already_told()) } else { Ok(()) }
    }
}

fn describe(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "ok".to_owned(),
        Outcome::Skipped(reason) => format!("skipped: {reason}"),
        Outcome::Failed(problem) => format!("FAILED: {problem}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Steps};
    use crate::failure::Failure;

    #[test]
    fn a_failed_step_fails_the_command_but_not_the_next_step() {
        let mut steps = Steps::default();
        let mut reached = false;
        assert!(!steps.check("first", || Err(Failure::new("broken"))));
        steps.check("second", || {
            reached = true;
            Ok(())
        });
        assert!(reached);
        assert!(steps.finish().is_err());
    }

    #[test]
    fn a_skipped_step_fails_nothing() {
        let mut steps = Steps::default();
        assert!(steps.step("first", || Ok(Outcome::Skipped("no such tool".to_owned()))));
        steps.skip("second", "not wanted");
        assert!(steps.finish().is_ok());
    }
}
