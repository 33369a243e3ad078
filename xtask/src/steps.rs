//! The steps of a long command: a heading and a time for each, a summary at the end, and the sum of
//! what test runners count. A failed step never hides the ones after it.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};

use crate::shell::target;
use crate::tally::Tally;

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

/// Where a command that runs beside this one prints.
fn log(words: &[&str]) -> PathBuf {
    target().join(format!("xtask-{}.log", words.join("-")))
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
    /// How many steps there are, where that is known before; how many began.
    planned: Option<usize>,
    begun: usize,
    /// What the reader may want to know or do next.
    notes: Vec<String>,
    /// Commands of this program that run beside this one, and the files of what they print.
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
            planned: None,
            begun: 0,
            notes: Vec::new(),
            beside: Vec::new(),
        }
    }

    /// Says how many steps there are: each heading has its number.
    pub(crate) fn plan(&mut self, steps: usize) {
        self.planned = Some(steps);
    }

    /// Adds a line below the table.
    pub(crate) fn note(&mut self, line: String) {
        self.notes.push(line);
    }

    pub(crate) fn have_failed(&self) -> bool {
        self.ended.iter().any(|row| row.contains(FAILED))
    }

    /// Starts another command of this program, for steps that build into folders of their own. What
    /// it prints follows when this command has ended, its steps join the summary.
    pub(crate) fn beside(&mut self, words: &[&str]) -> Result<()> {
        let log = log(words);
        let file = File::create(&log)?;
        println!("`cargo xtask {}` runs beside this: {}", words.join(" "), log.display());
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);
        self.beside.push((command.spawn()?, log));
        Ok(())
    }

    /// Waits for the commands that run beside this one.
    pub(crate) fn join(&mut self) -> Result<()> {
        while let Some((child, log)) = self.beside.pop() {
            self.joined(child, &log)?;
        }
        Ok(())
    }

    /// Waits for one of them.
    pub(crate) fn wait(&mut self, words: &[&str]) -> Result<()> {
        let found = self.beside.iter().position(|(_, file)| *file == log(words));
        let (child, log) = self.beside.swap_remove(found.context("a command that runs")?);
        self.joined(child, &log)
    }

    fn joined(&mut self, mut child: Child, log: &Path) -> Result<()> {
        let status = child.wait()?;
        let text = String::from_utf8_lossy(&std::fs::read(log)?).into_owned();
        let (_, summary) = text.rsplit_once(HEADING).unwrap_or_default();
        self.add(summary);
        if !status.success() {
            print!("{text}");
        }
        ensure!(status.success() || summary.contains(FAILED), "{}: {status}", log.display());
        Ok(())
    }

    /// Adds what another command's summary says.
    fn add(&mut self, summary: &str) {
        let rows = summary.lines().skip_while(|line| !line.starts_with("| ---")).skip(1);
        let rows = rows.take_while(|line| !line.starts_with("| in all"));
        self.ended.extend(rows.map(|row| row.replacen("| ", "| beside: ", 1)));
        let reasons = summary.lines().filter(|line| line.starts_with("- "));
        self.left_out.extend(reasons.map(str::to_owned));
        if let Some(sum) = summary.lines().last().filter(|line| line.contains(" passed")) {
            self.tally.get_or_insert_default().add(&Tally::sum(sum));
        }
    }

    /// Runs one step under a heading; returns whether it succeeded or was skipped.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> bool {
        self.begun += 1;
        let number = self.planned.map(|all| format!("step {} of {all}: ", self.begun));
        println!("\n== {}{name} ==", number.unwrap_or_default());
        let started = Instant::now();
        let result = work();
        self.end(name, result, started.elapsed())
    }

    /// Runs one step that counts tests. If it fails before it counts a failure, it is one.
    pub(crate) fn count(&mut self, name: &str, work: impl FnOnce(&mut Tally) -> Result<()>) {
        let mut tally = Tally::default();
        let required = self.required.clone();
        let went_well = self.step(name, || {
            tally = Tally::of(name)?;
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
        !self.have_failed()
    }

    /// Why tests were skipped, a table in Markdown, what to know or do next, the rows of failed steps again, since a long log is
    /// read from its end, and the sum of the tests.
    fn summary(&self) -> String {
        let head = ["| step | seconds | outcome |".to_owned(), "| --- | ---: | --- |".to_owned()];
        let all = format!("| in all | {:.1} | |", self.started.elapsed().as_secs_f32());
        let failed = self.ended.iter().filter(|row| row.contains(FAILED));
        let gap = (!self.left_out.is_empty()).then(String::new);
        let table = self.left_out.iter().chain(&gap).chain(&head).chain(&self.ended).chain([&all]);
        let mut text = String::new();
        for line in table.chain(&self.notes).chain(failed) {
            text += &format!("{line}\n");
        }
        text + &self.tally.iter().map(|tally| format!("\n{tally}\n")).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::{Steps, skip};
    use crate::tally::Tally;

    fn tally(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally::sum(&format!("{passed} passed, {failed} failed, {skipped} skipped"))
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
        assert!(summary.starts_with("- Julia: CUDA: no GPU (1)\n\n| step |"), "{summary}");
        let end: Vec<&str> = summary.lines().rev().take(3).collect();
        assert_eq!(end, ["3 passed, 1 failed, 1 skipped", "", &*steps.ended[1]]);
        assert!(!steps.finish());
    }

    #[test]
    fn what_to_do_next_stands_below_the_table() {
        let mut steps = Steps::requiring("");
        steps.plan(2);
        steps.step("one", || Ok(()));
        steps.note("next: more".to_owned());
        let summary = steps.summary();
        let (table, rest) = summary.split_once("| in all").unwrap();
        assert!(
            table.contains("| one | 0.0 | ok |") && rest.ends_with("|\nnext: more\n"),
            "{summary}"
        );
        let mut outer = Steps::requiring("");
        outer.add(&summary);
        assert_eq!(outer.ended, ["| beside: one | 0.0 | ok |"]);
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
}
