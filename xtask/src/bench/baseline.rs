//! The counts that a change is held against, in `benches/python/counts.json`.
//! Invariant: ratios to the floor are compared, because counts differ between compilers and
//! Pythons, and a ratio hardly does.

use std::collections::BTreeMap;

use crate::bench::libraries::{FLOOR, OURS};
use crate::bench::paths::PATHS;
use crate::bench::results::Results;
use crate::failure::{Failure, Result};
use crate::project;

const FILE: &str = "benches/python/counts.json";
/// How much worse a ratio may be: what other compilers and Pythons make of the same code.
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
    pub(crate) fn worse(&self, measured: &Self) -> Vec<String> {
        let both = |(path, old): (&String, &[f64; 2])| {
            let (old, new) = (ratio(*old), ratio(*measured.counts.get(path)?));
            (new > old * (1.0 + TOLERANCE)).then(|| {
                format!("{path}: {new:.3} times the floor's instructions, {old:.3} before")
            })
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
        let lines = text.strip_prefix("{\n")?.strip_suffix("\n}\n")?.lines();
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
    fn the_file_is_readable() {
        assert!(!Baseline::load().unwrap().counts.is_empty());
    }
}
