//! The steps of a long command: a heading and a time for each, a summary at the end, and the sum of
//! what test runners count. A failed step never hides the ones after it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail};
use xshell::Cmd;

use crate::shell::{each_line, target};

/// Names steps that fail where they would be skipped, and words of reasons for which no test may be
/// skipped: CI sets it.
const REQUIRED: &str = "DLBRIDGE_REQUIRE";
/// Stands above the summary.
const HEADING: &str = "\n== summary ==\n";
/// What a step that failed says in the summary.
const FAILED: &str = "FAILED: ";

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
pub(crate) struct Steps {
    started: Instant,
    /// The rows of the summary.
    ended: Vec<String>,
    /// Why tests were skipped, step by step.
    left_out: Vec<String>,
    /// The sum, where a step counts tests.
    tally: Option<Tally>,
    required: Vec<String>,
    /// Commands of this program that run beside this one, and what they print.
    beside: Vec<(Child, PathBuf)>,
}

impl Steps {
    /// Runs a command that consists of steps, then prints the summary; the sum of the tests, where
    /// there is one, is the last line. Fails if a step failed.
    pub(crate) fn run(command: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let required = std::env::var(REQUIRED).unwrap_or_default();
        let mut steps = Self::requiring(&required);
        let result = command(&mut steps);
        let joined = steps.join();
        let went_well = steps.finish();
        // The summary names what failed.
        result.and(joined).and_then(|()| if went_well { Ok(()) } else { bail!("") })
    }

    fn requiring(names: &str) -> Self {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self {
            started: Instant::now(),
            ended: Vec::new(),
            left_out: Vec::new(),
            tally: None,
            required: names.map(str::to_owned).collect(),
            beside: Vec::new(),
        }
    }

    /// Starts another command of this program, for steps that build into folders of their own. What
    /// it prints follows when this command has ended, its steps join the summary.
    pub(crate) fn beside(&mut self, words: &[&str]) -> Result<()> {
        let log = target().join(format!("xtask-{}.log", words.join("-")));
        let file = File::create(&log)?;
        println!("`cargo xtask {}` runs beside this: {}", words.join(" "), log.display());
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);
        self.beside.push((command.spawn()?, log));
        Ok(())
    }

    fn join(&mut self) -> Result<()> {
        for (mut child, log) in std::mem::take(&mut self.beside) {
            let status = child.wait()?;
            let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
            print!("{text}");
            let (_, summary) = text.rsplit_once(HEADING).unwrap_or_default();
            self.add(summary);
            if !status.success() && !summary.contains(FAILED) {
                bail!("{}: {status}", log.display());
            }
        }
        Ok(())
    }

    /// Adds what another command's summary says.
    fn add(&mut self, summary: &str) {
        let rows = summary.lines().skip(2).take_while(|line| !line.starts_with("| in all"));
        self.ended.extend(rows.map(|row| row.replacen("| ", "| beside: ", 1)));
        let reasons = summary.lines().filter(|line| line.starts_with("- "));
        self.left_out.extend(reasons.map(str::to_owned));
        if let Some(sum) = summary.lines().last().filter(|line| line.contains(" passed")) {
            self.tally.get_or_insert_default().add(&Tally::sum(sum));
        }
    }

    /// Runs one step under a heading; returns whether it succeeded or was skipped.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> bool {
        println!("\n== {name} ==");
        let started = Instant::now();
        let result = work();
        self.end(name, result, started.elapsed())
    }

    /// Runs one step that counts tests. If it fails before it counts a failure, it is one.
    pub(crate) fn count(&mut self, name: &str, work: impl FnOnce(&mut Tally) -> Result<()>) {
        let mut tally = Tally::default();
        let required = self.required.clone();
        let went_well = self.step(name, || {
            work(&mut tally)?;
            let is_required = |reason: &String| {
                let mut words = reason.split(' ').map(|word| word.trim_end_matches(':'));
                !tally.is_bare && words.any(|word| required.iter().any(|one| one == word))
            };
            match tally.reasons.keys().find(|reason| is_required(reason)) {
                Some(reason) => bail!("{REQUIRED} forbids this, but skipped: {reason}"),
                None => Ok(()),
            }
        });
        if !went_well {
            tally.failed = tally.failed.max(1);
        }
        let line = |(reason, times): (&String, &u64)| format!("- {name}: {reason} ({times})");
        self.left_out.extend(tally.reasons.iter().map(line));
        self.tally.get_or_insert_default().add(&tally);
    }

    /// Adds a skipped step to the summary, with the reason.
    pub(crate) fn skip(&mut self, name: &str, reason: impl fmt::Display) {
        self.end(name, skip(reason), Duration::ZERO);
    }

    fn end(&mut self, name: &str, result: Result<()>, took: Duration) -> bool {
        // "install" stands for each of "install torch", "install jax" and so on.
        let is_it = |required: &String| format!("{name} ").starts_with(&format!("{required} "));
        let outcome = match result {
            Ok(()) => "ok".to_owned(),
            Err(reason) if !reason.is::<Skip>() => format!("{FAILED}{reason:#}"),
            Err(reason) if self.required.iter().any(is_it) => {
                format!("{FAILED}{REQUIRED} names it, but skipped: {reason}")
            }
            Err(reason) => format!("skipped: {reason}"),
        };
        let shown = outcome.replace('\n', " ");
        let row = format!("| {name} | {:.1} | {} |", took.as_secs_f32(), shown.trim());
        println!("-- {row}");
        self.ended.push(row);
        !outcome.starts_with(FAILED)
    }

    /// Prints the summary; returns whether no step failed.
    fn finish(&self) -> bool {
        print!("{HEADING}{}", self.summary());
        !self.ended.iter().any(|row| row.contains(FAILED))
    }

    /// A table in Markdown, why tests were skipped, the rows of failed steps again, since a long log is
    /// read from its end, and the sum of the tests.
    fn summary(&self) -> String {
        let mut text = "| step | seconds | outcome |\n| --- | ---: | --- |\n".to_owned();
        let all = format!("| in all | {:.1} | |", self.started.elapsed().as_secs_f32());
        let failed = self.ended.iter().filter(|row| row.contains(FAILED));
        for line in self.ended.iter().chain([&all]).chain(&self.left_out).chain(failed) {
            text += &format!("{line}\n");
        }
        text + &self.tally.iter().map(|tally| format!("\n{tally}\n")).collect::<String>()
    }
}

/// How many tests passed, failed and were skipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// Why tests, or parts of tests, were skipped, and how many.
    reasons: BTreeMap<String, u64>,
    /// Nothing that [`REQUIRED`] names can be here: no reason is a failure.
    pub(crate) is_bare: bool,
}

impl Tally {
    /// Runs a test runner, and adds what its closing lines say.
    pub(crate) fn run(&mut self, runner: Cmd<'_>) -> Result<()> {
        let mut found = false;
        let result = each_line(runner, |line| {
            println!("{line}");
            if let Some((reason, times)) = Self::reason(line) {
                *self.reasons.entry(reason.to_owned()).or_default() += times;
            }
            if let Some(counted) = Self::read(line) {
                self.add(&counted);
                found = true;
            }
        });
        result.and_then(|()| if found { Ok(()) } else { bail!("no test ran") })
    }

    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Reads `skipped: no CMake` (our tests in Rust and Julia), and
    /// `SKIPPED [3] test_x.py:4: torch is not installed` (pytest).
    fn reason(line: &str) -> Option<(&str, u64)> {
        if let Some(reason) = line.strip_prefix("skipped: ") {
            return Some((reason, 1));
        }
        let (times, rest) = line.strip_prefix("SKIPPED [")?.split_once("] ")?;
        Some((rest.split_once(": ").map_or(rest, |(_, reason)| reason), times.parse().ok()?))
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

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped, .. } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::{Steps, Tally, skip};

    fn tally(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally { passed, failed, skipped, ..Tally::default() }
    }

    #[test]
    fn a_failed_step_does_not_hide_the_next_one_and_is_counted_once() {
        let mut steps = Steps::requiring("");
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
    fn what_is_required_is_not_skipped() {
        let cases = [("", true), ("Julia", false), ("a, install", false), ("Jul", true)];
        for (required, is_fine) in cases {
            let mut steps = Steps::requiring(required);
            steps.skip("Julia", "no julia");
            steps.step("install torch", || skip("no network"));
            assert_eq!(steps.finish(), is_fine, "{required}");
        }
        let torch = "SKIPPED [2] a.py:3: torch is not installed";
        for (line, required, is_fine) in [
            (torch, "install, torch", false),
            (torch, "install, paddle", true),
            ("skipped: header: no package has one", "header", false),
        ] {
            let mut steps = Steps::requiring(required);
            steps.count("tests", |tally| {
                let (reason, times) = Tally::reason(line).unwrap();
                tally.reasons.insert(reason.to_owned(), times);
                Ok(())
            });
            assert_eq!((steps.finish(), steps.left_out.len()), (is_fine, 1), "{line}");
        }
    }

    #[test]
    fn what_ran_beside_joins_the_summary() {
        let [mut steps, mut beside] = [Steps::requiring(""), Steps::requiring("")];
        beside.skip("fuzz", "no compiler");
        beside.count("Julia", |tally| {
            (tally.passed, tally.skipped) = (3, 1);
            tally.reasons.insert("CUDA: no GPU".to_owned(), 1);
            bail!("one\nfailed")
        });
        steps.add(&beside.summary());
        assert_eq!(steps.tally, Some(tally(3, 1, 1)));
        assert_eq!(steps.ended[0], "| beside: fuzz | 0.0 | skipped: no compiler |");
        assert_eq!(steps.left_out, ["- Julia: CUDA: no GPU (1)"]);
        let summary = steps.summary();
        let end: Vec<&str> = summary.lines().rev().take(3).collect();
        assert_eq!(end, ["3 passed, 1 failed, 1 skipped", "", &*steps.ended[1]]);
        assert!(!steps.finish());
    }

    #[test]
    fn a_process_beside_is_waited_for() {
        let mut steps = Steps::requiring("");
        // This program runs the test above, which prints a summary with a failure.
        steps.beside(&["what_ran_beside", "--nocapture"]).unwrap();
        steps.join().unwrap();
        assert!(steps.ended[0].starts_with("| beside: beside: fuzz |"), "{:?}", steps.ended);
        assert!(!steps.finish());
    }

    #[test]
    fn only_closing_lines_are_counted() {
        for (line, counted) in [
            ("test result: FAILED. 12 passed; 1 failed; 2 ignored", Some(tally(12, 1, 2))),
            ("== 1 failed, 31 passed, 4 skipped, 1 error in 2.10s ==", Some(tally(31, 2, 4))),
            ("3 passed, 1 xfailed in 61.20s (0:01:01)", Some(tally(4, 0, 0))),
            ("julia: 700 passed, 2 failed, 1 skipped", Some(tally(700, 2, 1))),
            ("test tensor::moves ... ok", None),
            ("no tests ran in 0.01s", None),
            ("3 passed in a row", None),
            ("SKIPPED [1] x.py:3: 2 passed", None),
        ] {
            assert_eq!(Tally::read(line), counted, "{line}");
        }
    }
}
