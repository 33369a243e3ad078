//! The counts that a change is held against, in `benches/python/counts.json`.
//! Invariant: only what dlbridge adds to the floor is compared, because the counts themselves differ
//! between compilers and Pythons.

use std::collections::BTreeMap;

use crate::bench::libraries::{FLOOR, OURS};
use crate::bench::paths::PATHS;
use crate::bench::results::Results;
use crate::failure::{Failure, Result};
use crate::project;

const FILE: &str = "benches/python/counts.json";
/// By how much a number may grow and still be called the same.
const TOLERANCE: f64 = 0.05;

/// Instructions of the floor and of dlbridge, by path.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Baseline {
    counts: BTreeMap<String, [f64; 2]>,
}

impl Baseline {
    /// Reads the file.
    pub(crate) fn load() -> Result<Self> {
        let text = project::read(&project::path(FILE))?;
        Self::parse(&text).ok_or_else(|| Failure::new(format!("{FILE} is not as it was written")))
    }

    /// What was measured.
    pub(crate) fn of(results: &Results) -> Self {
        let count = |path: &str, module| results.get(path, module)?.instructions;
        let counts = PATHS.iter().filter_map(|path| {
            let counts = [count(path.key, FLOOR.module)?, count(path.key, OURS.module)?];
            Some((path.key.to_owned(), counts))
        });
        Self { counts: counts.collect() }
    }

    /// Writes the file; a path that was not measured keeps its counts.
    pub(crate) fn save(mut self) -> Result {
        if let Ok(old) = Self::load() {
            for (path, counts) in old.counts {
                self.counts.entry(path).or_insert(counts);
            }
        }
        project::write(&project::path(FILE), self.json())?;
        println!("wrote {FILE}");
        Ok(())
    }

    /// What of a measurement is worse than this, in words.
    ///
    /// The ratio to the floor and the instructions above it must both have grown: with another
    /// Python, one of the two may grow where the code is the same.
    pub(crate) fn worse(&self, measured: &Self) -> Vec<String> {
        let both = |(path, old): (&String, &[f64; 2])| {
            let new = measured.counts.get(path)?;
            let worse = has_grown(ratio(*old), ratio(*new)) && has_grown(above(*old), above(*new));
            let (old, new) = (ratio(*old), ratio(*new));
            let what =
                || format!("{path}: {new:.3} times the floor's instructions, {old:.3} before");
            worse.then(what)
        };
        self.counts.iter().filter_map(both).collect()
    }

    /// One path a line.
    fn json(&self) -> String {
        let line = |(path, [floor, ours]): (&String, &[f64; 2])| {
            format!(
                "  \"{path}\": {{ \"{}\": {floor:.0}, \"{}\": {ours:.0} }}",
                FLOOR.module, OURS.module
            )
        };
        format!("{{\n{}\n}}\n", self.counts.iter().map(line).collect::<Vec<_>>().join(",\n"))
    }

    /// Reads what [`json`](Self::json) writes.
    fn parse(text: &str) -> Option<Self> {
        let lines = text.lines().filter(|line| !["{", "}"].contains(line));
        let count = |line: &str, module: &str| {
            let (_, rest) = line.split_once(&format!("\"{module}\": "))?;
            rest.split([',', ' ']).next()?.parse::<f64>().ok()
        };
        let entry = |line: &str| {
            let path = line.split('"').nth(1)?.to_owned();
            Some((path, [count(line, FLOOR.module)?, count(line, OURS.module)?]))
        };
        Some(Self { counts: lines.map(entry).collect::<Option<_>>()? })
    }
}

fn ratio([floor, ours]: [f64; 2]) -> f64 {
    ours / floor
}

fn above([floor, ours]: [f64; 2]) -> f64 {
    ours - floor
}

fn has_grown(old: f64, new: f64) -> bool {
    new > old + TOLERANCE * old.abs()
}

#[cfg(test)]
mod tests {
    use super::Baseline;
    use crate::bench::results::tests::some;

    fn baseline(ours: f64) -> Baseline {
        Baseline { counts: [("numpy-in".to_owned(), [1000.0, ours])].into() }
    }

    #[test]
    fn what_is_written_is_read() {
        let measured = Baseline::of(&some());
        assert_eq!(measured, baseline(1500.0));
        assert_eq!(Baseline::parse(&measured.json()), Some(measured));
        assert_eq!(Baseline::parse("{\n  \"numpy-in\": 3\n}\n"), None);
    }

    #[test]
    fn only_a_worse_ratio_is_told() {
        let measured = baseline(1500.0);
        assert_eq!(baseline(1440.0).worse(&measured), [""; 0]);
        assert_eq!(baseline(2000.0).worse(&measured), [""; 0]);
        assert_eq!(Baseline::default().worse(&measured), [""; 0]);
        let worse = baseline(1400.0).worse(&measured);
        assert_eq!(worse, ["numpy-in: 1.500 times the floor's instructions, 1.400 before"]);
    }

    #[test]
    fn another_python_is_not_worse() {
        let with = |counts| Baseline { counts: [("numpy-in".to_owned(), counts)].into() };
        // The ratio grew, and what is above the floor did not; or the other way round.
        assert_eq!(with([1000.0, 1500.0]).worse(&with([800.0, 1300.0])), [""; 0]);
        assert_eq!(with([1000.0, 1500.0]).worse(&with([1500.0, 2100.0])), [""; 0]);
        // Below the floor, coming nearer to it is worse.
        assert_eq!(with([1000.0, 500.0]).worse(&with([1000.0, 600.0])).len(), 1);
    }

    #[test]
    fn the_file_is_readable() {
        assert!(!Baseline::load().unwrap().counts.is_empty());
    }
}
