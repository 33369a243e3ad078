//! The steps of a long command: a heading and a time for each, a summary at the end, and the sum of
//! what test runners count. A failed step never hides the ones after it.

use std::fmt;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail};
use xshell::Cmd;

use crate::shell::{Stream, each_line};

/// Names steps that fail where they would be skipped: CI sets it.
const REQUIRED: &str = "DLBRIDGE_REQUIRE";

/// How a step ended.
enum Outcome {
    Done,
    Skipped(String),
    Failed(String),
}

/// An error that is no failure: why a step cannot run here.
#[derive(Debug)]
struct Skip(String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Ends a step that cannot run here.
pub(crate) fn skip<T>(reason: impl fmt::Display) -> Result<T> {
    Err(Error::msg(Skip(format!("{reason:#}"))))
}

/// The steps done so far.
#[derive(Default)]
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
        let went_well = steps.finish();
        // The summary names what failed.
        result.and_then(|()| if went_well { Ok(()) } else { bail!("") })
    }

    fn requiring(names: &str) -> Self {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self { required: names.map(str::to_owned).collect(), ..Self::default() }
    }

    /// Runs one step under a heading.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<()>) {
        self.tell(name, work);
    }

    /// The same; tells whether it did not fail.
    fn tell(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> bool {
        println!("\n== {name} ==");
        let started = Instant::now();
        let outcome = match work() {
            Ok(()) => Outcome::Done,
            Err(error) if error.is::<Skip>() => Outcome::Skipped(error.to_string()),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        self.end(name, outcome, started.elapsed())
    }

    /// Runs one step that counts tests. If it fails before it counts a failure, it is one.
    pub(crate) fn count(&mut self, name: &str, work: impl FnOnce(&mut Tally) -> Result<()>) {
        let mut tally = Tally::default();
        if !self.tell(name, || work(&mut tally)) {
            tally.failed = tally.failed.max(1);
        }
        *self.tally.get_or_insert_default() += tally;
    }

    /// Notes what is left out, and why.
    pub(crate) fn skip(&mut self, name: &str, reason: impl Into<String>) {
        self.end(name, Outcome::Skipped(reason.into()), Duration::ZERO);
    }

    fn end(&mut self, name: &str, mut outcome: Outcome, took: Duration) -> bool {
        if let Outcome::Skipped(reason) = &outcome {
            // "install" stands for each of "install torch", "install jax" and so on.
            let is_it = |required: &String| format!("{name} ").starts_with(&format!("{required} "));
            if self.required.iter().any(is_it) {
                outcome = Outcome::Failed(format!("{REQUIRED} names it, but skipped: {reason}"));
            }
        }
        self.ended.push((name.to_owned(), outcome, took));
        println!("-- {}", self.line(self.ended.len() - 1));
        !matches!(self.ended.last(), Some((_, Outcome::Failed(_), _)))
    }

    fn line(&self, index: usize) -> String {
        let (name, outcome, took) = &self.ended[index];
        let outcome = match outcome {
            Outcome::Done => "ok".to_owned(),
            Outcome::Skipped(reason) => format!("skipped: {reason}"),
            Outcome::Failed(problem) => format!("FAILED: {problem}"),
        };
        format!("{:>7.1} s  {name}: {outcome}", took.as_secs_f32())
    }

    /// Prints the summary; tells whether no step failed.
    fn finish(&self) -> bool {
        println!("\n== summary ==");
        (0..self.ended.len()).for_each(|index| println!("{}", self.line(index)));
        let total: Duration = self.ended.iter().map(|(_, _, took)| *took).sum();
        println!("{:>7.1} s  in all", total.as_secs_f32());
        if let Some(tally) = self.tally {
            println!("\n{tally}");
        }
        !self.ended.iter().any(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_)))
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
        each_line(runner, Stream::Output, |line| {
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

    use super::{Steps, Tally, skip};

    fn tally(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally { passed, failed, skipped }
    }

    #[test]
    fn a_failed_step_does_not_hide_the_next_one_and_is_counted_once() {
        let mut steps = Steps::default();
        steps.count("builds nothing", |_| bail!("broken"));
        steps.count("finds a failed test", |tally| {
            tally.failed += 1;
            bail!("one test failed")
        });
        steps.count("is not there", |_| skip("no such tool"));
        steps.count("is right", |tally| {
            tally.passed += 1;
            Ok(())
        });
        assert_eq!(steps.tally, Some(tally(1, 2, 0)));
        assert!(!steps.finish());
    }

    #[test]
    fn a_skipped_step_fails_only_where_it_is_required() {
        let cases = [("", true), ("Julia", false), ("a, install", false), ("Jul", true)];
        for (required, is_fine) in cases {
            let mut steps = Steps::requiring(required);
            steps.skip("Julia", "no julia");
            steps.step("install torch", || skip("no network"));
            assert_eq!(steps.finish(), is_fine, "{required}");
        }
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
