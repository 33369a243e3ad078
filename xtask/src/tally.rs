//! How many tests passed, failed and were skipped, read from what test runners print.
//! Running them does not belong here.

use std::fmt;
use std::ops::AddAssign;

/// Counted tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that ran and were right.
    pub(crate) passed: u64,
    /// Tests that ran and were wrong.
    pub(crate) failed: u64,
    /// Tests that did not run.
    pub(crate) skipped: u64,
}

impl Tally {
    /// One test that passed.
    pub(crate) const PASSED: Self = Self { passed: 1, failed: 0, skipped: 0 };
    /// One test that failed.
    pub(crate) const FAILED: Self = Self { passed: 0, failed: 1, skipped: 0 };

    /// Reads `cargo test`'s `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
    pub(crate) fn from_cargo(line: &str) -> Option<Self> {
        let counts = line.strip_prefix("test result: ")?;
        Some(Self::count(counts.split(['.', ';'])))
    }

    /// Reads pytest's closing line, `== 2 passed, 1 skipped in 0.12s ==` or without the signs.
    pub(crate) fn from_pytest(line: &str) -> Option<Self> {
        let (counts, time) = line.trim_matches(['=', ' ']).rsplit_once(" in ")?;
        let is_time = time.starts_with(|c: char| c.is_ascii_digit()) && time.contains('s');
        let tally = Self::count(counts.split(','));
        (is_time && tally != Self::default()).then_some(tally)
    }

    /// Reads the closing line of the Julia tests, `julia: 3 passed, 0 failed, 1 skipped`.
    pub(crate) fn from_julia(line: &str) -> Option<Self> {
        Some(Self::count(line.strip_prefix("julia: ")?.split(',')))
    }

    /// Sums parts such as ` 3 passed`; other words count nothing.
    fn count<'a>(parts: impl Iterator<Item = &'a str>) -> Self {
        let mut tally = Self::default();
        for part in parts {
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
    use super::Tally;

    fn tally(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally { passed, failed, skipped }
    }

    #[test]
    fn cargo_lines_are_counted() {
        let line = "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; \
                    7 filtered out; finished in 0.31s";
        assert_eq!(Tally::from_cargo(line), Some(tally(12, 1, 2)));
        assert_eq!(Tally::from_cargo("test tensor::moves ... ok"), None);
    }

    #[test]
    fn pytest_lines_are_counted() {
        let line = "==== 1 failed, 31 passed, 4 skipped, 2 warnings, 1 error in 2.10s ====";
        assert_eq!(Tally::from_pytest(line), Some(tally(31, 2, 4)));
        assert_eq!(
            Tally::from_pytest("3 passed, 1 xfailed in 61.20s (0:01:01)"),
            Some(tally(4, 0, 0))
        );
        assert_eq!(Tally::from_pytest("==== 5 skipped in 0.01s ===="), Some(tally(0, 0, 5)));
    }

    #[test]
    fn julia_lines_are_counted() {
        let line = "julia: 700 passed, 2 failed, 1 skipped";
        assert_eq!(Tally::from_julia(line), Some(tally(700, 2, 1)));
        assert_eq!(Tally::from_julia("Testing DLBridge tests passed"), None);
    }

    #[test]
    fn other_pytest_lines_are_not_counted() {
        for line in ["no tests ran in 0.01s", "3 passed in a row", "SKIPPED [1] x.py:3: 2 passed"] {
            assert_eq!(Tally::from_pytest(line), None, "{line}");
        }
    }

    #[test]
    fn tallies_add_up_and_print() {
        let mut sum = tally(1, 2, 3);
        sum += Tally::PASSED;
        sum += Tally::FAILED;
        assert_eq!(sum.to_string(), "2 passed, 3 failed, 3 skipped");
    }
}
