//! What test runners print: all of it in a file, what a reader waits for on the screen, and the counts and reasons of their
//! closing lines.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::{Result, anyhow, bail};
use xshell::Cmd;

use crate::shell::{each_line, target};

/// So many lines of a runner's errors are shown when it fails.
const LAST: usize = 40;

/// How many tests passed, failed and were skipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// Why tests, or parts of tests, were skipped, and how many.
    pub(crate) reasons: BTreeMap<String, u64>,
    /// Nothing that `DLBRIDGE_REQUIRE` names can be here: no reason is a failure.
    pub(crate) is_bare: bool,
    /// The file that has all that test runners print.
    log: PathBuf,
}

impl Tally {
    /// A tally for a step, with an empty file for what is printed.
    pub(crate) fn of(step: &str) -> Result<Self> {
        let name = step.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
        let folder = target().join("logs");
        std::fs::create_dir_all(&folder)?;
        let log = folder.join(name).with_extension("txt");
        File::create(&log)?;
        Ok(Self { log, ..Self::default() })
    }

    /// Runs a test runner, and adds what its closing lines say. All that it prints goes to a file, and to the screen what a
    /// reader waits for.
    pub(crate) fn run(&mut self, runner: Cmd<'_>) -> Result<()> {
        let log = Mutex::new(File::options().create(true).append(true).open(&self.log)?);
        let write = |line: &str| drop(writeln!(log.lock().expect("no panic"), "{line}"));
        let (mut found, mut screen, mut hidden) = (false, Screen::default(), VecDeque::new());
        let mut is_diagnostic = false;
        let result = each_line(
            runner,
            |line| {
                write(line);
                if screen.shows(line) {
                    println!("{line}");
                }
                if let Some((reason, times)) = Self::reason(line) {
                    *self.reasons.entry(reason.to_owned()).or_default() += times;
                }
                if let Some(counted) = Self::read(line) {
                    self.add(&counted);
                    found = true;
                }
            },
            Some(&mut |line: &str| {
                write(line);
                // With the source that the compiler shows.
                is_diagnostic = is_error(line) || is_diagnostic && !line.is_empty();
                if is_diagnostic || is_progress(line) {
                    eprintln!("{line}");
                } else {
                    hidden.push_back(line.to_owned());
                    if hidden.len() > LAST {
                        hidden.pop_front();
                    }
                }
            }),
        );
        if result.is_err() {
            hidden.iter().for_each(|line| eprintln!("{line}"));
        }
        let result = result.and_then(|()| if found { Ok(()) } else { bail!("no test ran") });
        let log = self.log.display();
        result.map_err(|error| anyhow!("{error:#}; all that was printed: {log}"))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Reads `skipped: no CMake` (our tests in Rust and Julia), and
    /// `SKIPPED [3] test_x.py:4: torch is not installed` (pytest).
    pub(crate) fn reason(line: &str) -> Option<(&str, u64)> {
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
    pub(crate) fn sum(parts: &str) -> Self {
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

/// What of a test runner's output is shown: nothing of tests that passed.
#[derive(Default)]
enum Screen {
    #[default]
    Running,
    /// What tests printed that passed, in the order of `cargo test -- --show-output`,
    Passed,
    /// and what those printed that failed.
    Failed,
}

impl Screen {
    fn shows(&mut self, line: &str) -> bool {
        match line {
            "successes:" => *self = Self::Passed,
            "failures:" => *self = Self::Failed,
            _ if line.starts_with("test result: ") => *self = Self::Running,
            _ => {}
        }
        let is_test = line.starts_with("test ")
            && [" ok", " ignored"].iter().any(|it| line.contains(&format!(" ...{it}")));
        match self {
            Self::Running => {
                let is_head = line.starts_with("running ") || line.is_empty();
                !is_test && !is_head && Tally::reason(line).is_none()
            }
            Self::Passed => false,
            Self::Failed => true,
        }
    }
}

/// Whether a line of errors says what cargo does now, or how a test ended. The others are of tests.
fn is_progress(line: &str) -> bool {
    let words = ["Blocking", "Compiling", "Doc-tests", "Downloaded", "Downloading", "Running"];
    let is_word = line
        .strip_prefix("  ")
        .is_some_and(|rest| words.iter().any(|word| rest.trim_start().starts_with(word)));
    is_word || line.contains("process didn't exit successfully")
}

/// Whether a line of errors begins a message of cargo or the compiler.
fn is_error(line: &str) -> bool {
    ["error:", "error[", "warning:"].iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::{Screen, Tally, is_error, is_progress};

    fn tally(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally { passed, failed, skipped, ..Tally::default() }
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

    #[test]
    fn nothing_of_a_passing_test_is_shown() {
        let printed = "\nrunning 2 tests\ntest a ... ok\ntest b ... ignored, needs a GPU\ntest c ... FAILED\n\nsuccesses:\n\n\
            ---- a stdout ----\nthread 'a' panicked at x.rs:1\nFAILED: broken\n\nsuccesses:\n    a\n\n\
            failures:\n\n---- c stdout ----\nthread 'c' panicked at x.rs:2\n\nfailures:\n    c\n\n\
            test result: FAILED. 1 passed; 1 failed; 1 ignored\n\nskipped: no CMake\nSKIPPED [1] x.py:3: no torch";
        let mut screen = Screen::default();
        let shown: Vec<_> = printed.lines().filter(|line| screen.shows(line)).collect();
        assert_eq!(
            shown,
            [
                "test c ... FAILED",
                "failures:",
                "",
                "---- c stdout ----",
                "thread 'c' panicked at x.rs:2",
                "",
                "failures:",
                "    c",
                "",
                "test result: FAILED. 1 passed; 1 failed; 1 ignored",
            ]
        );
        for (line, is_shown) in [
            ("     Running tests/it/main.rs (target/debug/deps/it-1)", true),
            ("error: test failed, to rerun pass `-p dlbridge --lib`", true),
            ("thread 'main' panicked at x.rs:1", false),
            ("Running out of ideas", false),
        ] {
            assert_eq!(is_progress(line) || is_error(line), is_shown, "{line}");
        }
    }
}
