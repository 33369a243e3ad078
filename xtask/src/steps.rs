//! The steps of a long command: a heading and a time for each, a summary at the end, and the sum of
//! what test runners count. A failed step never hides the ones after it.

use std::fmt;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use xshell::Cmd;

use crate::shell;

/// Names steps that fail where they would be skipped: CI sets it.
const REQUIRED: &str = "DLBRIDGE_REQUIRE";

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// It could not run here, and why.
    Skipped(String),
    Failed(String),
}

impl Outcome {
    /// A step that cannot run here.
    pub(crate) fn skipped(reason: impl Into<String>) -> Result<Self> {
        Ok(Self::Skipped(reason.into()))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("ok"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
            Self::Failed(problem) => write!(f, "FAILED: {problem}"),
        }
    }
}

/// The command failed, and the summary already says why.
#[derive(Debug)]
pub(crate) struct Reported;

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("see the summary")
    }
}

impl std::error::Error for Reported {}

/// The steps done so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    ended: Vec<(String, Outcome, Duration)>,
    /// The sum, where a step counts tests.
    tally: Option<Tally>,
    required: Vec<String>,
}

impl Steps {
    /// Runs a command that consists of steps, then prints the summary; the sum of the tests, where
    /// there is one, is the last line. Fails if a step failed.
    pub(crate) fn run(command: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let required = std::env::var(REQUIRED).unwrap_or_default();
        let mut steps = Self::requiring(&required);
        let result = command(&mut steps);
        steps.finish()?;
        result
    }

    fn requiring(names: &str) -> Self {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self { required: names.map(str::to_owned).collect(), ..Self::default() }
    }

    /// Runs one step under a heading; tells whether it did not fail.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<Outcome>) -> bool {
        println!("\n== {name} ==");
        let started = Instant::now();
        let outcome = work().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        self.end(name, outcome, started.elapsed())
    }

    /// Runs one step that either succeeds or fails.
    pub(crate) fn check(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> bool {
        self.step(name, || work().map(|()| Outcome::Done))
    }

    /// Runs one step whose failure leaves something out, but is no failure of the command.
    pub(crate) fn optional(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> bool {
        self.step(name, || match work() {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => Outcome::skipped(format!("{error:#}")),
        })
    }

    /// Runs one step that counts tests. If it fails before it counts a failure, it is one.
    pub(crate) fn count(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Tally) -> Result<()>,
    ) -> bool {
        let mut tally = Tally::default();
        let went_well = self.check(name, || work(&mut tally));
        if !went_well && tally.failed == 0 {
            tally.failed = 1;
        }
        *self.tally.get_or_insert_default() += tally;
        went_well
    }

    /// Notes what is left out, and why.
    pub(crate) fn skip(&mut self, name: &str, reason: impl Into<String>) {
        self.end(name, Outcome::Skipped(reason.into()), Duration::ZERO);
    }

    fn end(&mut self, name: &str, mut outcome: Outcome, took: Duration) -> bool {
        if let Outcome::Skipped(reason) = &outcome {
            // "install" stands for each of "install torch", "install jax" and so on.
            let is_required = |required: &String| {
                name.strip_prefix(&required[..])
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            if self.required.iter().any(is_required) {
                outcome =
                    Outcome::Failed(format!("{REQUIRED} names it, but it was skipped: {reason}"));
            }
        }
        println!("-- {name}: {outcome} ({:.1} s)", took.as_secs_f32());
        let went_well = !matches!(outcome, Outcome::Failed(_));
        self.ended.push((name.to_owned(), outcome, took));
        went_well
    }

    fn finish(&self) -> Result<()> {
        println!("\n== summary ==\n seconds  step");
        for (name, outcome, took) in &self.ended {
            println!("{:>8.1}  {name}: {outcome}", took.as_secs_f32());
        }
        let total: Duration = self.ended.iter().map(|(_, _, took)| *took).sum();
        println!("{:>8.1}  in all", total.as_secs_f32());
        if let Some(tally) = self.tally {
            println!("\n{tally}");
        }
        let failed = |(_, outcome, _): &(_, _, _)| matches!(outcome, Outcome::Failed(_));
        if self.ended.iter().any(failed) { Err(Reported.into()) } else { Ok(()) }
    }
}

/// How many tests passed, failed and were skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// Runs a test runner, and adds what its closing lines say.
    pub(crate) fn run(&mut self, runner: Cmd<'_>) -> Result<()> {
        let mut found = false;
        shell::each_line(runner, |line| {
            println!("{line}");
            if let Some(counted) = Self::read(line) {
                *self += counted;
                found = true;
            }
        })?;
        if found { Ok(()) } else { bail!("no test ran") }
    }

    /// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; ...` (cargo),
    /// `== 2 passed, 1 skipped in 0.12s ==` (pytest, the signs may be missing), and
    /// `julia: 3 passed, 0 failed, 1 skipped`.
    fn read(line: &str) -> Option<Self> {
        let counts = line.strip_prefix("test result: ").or_else(|| line.strip_prefix("julia: "));
        if let Some(counts) = counts {
            return Some(Self::sum(counts));
        }
        let (counts, time) = line.trim_matches(['=', ' ']).rsplit_once(" in ")?;
        let is_time = time.starts_with(|c: char| c.is_ascii_digit()) && time.contains('s');
        let tally = Self::sum(counts);
        (is_time && tally != Self::default()).then_some(tally)
    }

    /// Sums parts such as ` 3 passed`; other words count nothing.
    fn sum(parts: &str) -> Self {
        let mut tally = Self::default();
        for part in parts.split(['.', ';', ',']) {
            let Some((number, word)) = part.trim().split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match word {
                "passed" | "xfailed" | "xpassed" => tally.passed += number,
                "failed" | "error" | "errors" => tally.failed += number,
                "skipped" | "ignored" => tally.skipped += number,
                _ => {}
            }
        }
        tally
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::{Outcome, Steps, Tally};

    fn tally(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally { passed, failed, skipped }
    }

    #[test]
    fn a_failed_step_fails_the_command_but_not_the_next_step() {
        let mut steps = Steps::default();
        assert!(!steps.check("first", || bail!("broken")));
        assert!(steps.check("second", || Ok(())));
        assert!(steps.finish().is_err());
    }

    #[test]
    fn a_skipped_step_fails_only_where_it_is_required() {
        for (required, fails) in
            [("", false), ("Julia", true), ("a, install", true), ("Jul", false)]
        {
            let mut steps = Steps::requiring(required);
            steps.skip("Julia", "no julia");
            steps.step("install torch", || Outcome::skipped("no network"));
            assert_eq!(steps.finish().is_err(), fails, "{required}");
        }
    }

    #[test]
    fn a_failure_is_counted_once() {
        let mut steps = Steps::default();
        steps.count("builds nothing", |_| bail!("broken"));
        steps.count("finds a failed test", |tally| {
            tally.failed += 1;
            bail!("one test failed")
        });
        steps.count("is right", |tally| {
            tally.passed += 1;
            Ok(())
        });
        assert_eq!(steps.tally, Some(tally(1, 2, 0)));
        assert!(steps.finish().is_err());
    }

    #[test]
    fn closing_lines_are_counted() {
        for (line, counted) in [
            ("test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured", tally(12, 1, 2)),
            ("== 1 failed, 31 passed, 4 skipped, 2 warnings, 1 error in 2.10s ==", tally(31, 2, 4)),
            ("3 passed, 1 xfailed in 61.20s (0:01:01)", tally(4, 0, 0)),
            ("==== 5 skipped in 0.01s ====", tally(0, 0, 5)),
            ("julia: 700 passed, 2 failed, 1 skipped", tally(700, 2, 1)),
        ] {
            assert_eq!(Tally::read(line), Some(counted), "{line}");
        }
    }

    #[test]
    fn other_lines_are_not_counted() {
        for line in [
            "test tensor::moves ... ok",
            "no tests ran in 0.01s",
            "3 passed in a row",
            "SKIPPED [1] x.py:3: 2 passed",
            "Testing DLBridge tests passed",
        ] {
            assert_eq!(Tally::read(line), None, "{line}");
        }
    }
}
