//! What was measured, put together from records and dumps.
//! Invariant: every number is a difference between a library's call and an empty one.

use std::collections::{BTreeMap, HashMap};

use crate::bench::callgrind::Dump;
use crate::bench::libraries::{FLOOR, OURS, PEERS};
use crate::bench::paths::{PATHS, WAYS_IN};

/// The numbers of one path through one library.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Cost {
    /// Instructions.
    pub(crate) instructions: Option<f64>,
    /// Calls of `malloc` and its kin.
    pub(crate) allocations: Option<f64>,
    /// Median time.
    pub(crate) nanoseconds: Option<f64>,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Results {
    costs: BTreeMap<(String, String), Cost>,
    /// Versions by the names of frameworks and libraries.
    pub(crate) versions: BTreeMap<String, String>,
    /// What could not be measured, and why.
    pub(crate) notes: Vec<String>,
}

impl Results {
    /// Takes the lines of `measure.py`; gives the number of counted calls, if it counted.
    pub(crate) fn add_records(&mut self, lines: &str) -> Option<u64> {
        let mut calls = None;
        for line in lines.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["time", path, library, time] => {
                    self.cost(path, library).nanoseconds = time.parse().ok();
                }
                ["calls", number] => calls = number.parse().ok(),
                ["version", name, version] => {
                    self.versions.insert(name.to_owned(), version.to_owned());
                }
                ["absent", framework] => self.note(format!(
                    "{framework} is not installed: cargo xtask bench python --with {framework}"
                )),
                ["broken", module, reason] => self.note(format!("{}: {reason}", name(module))),
                ["failed", path, module, reason] => {
                    self.note(format!("{}, {}: {reason}", name(module), title(path)));
                }
                _ => {}
            }
        }
        calls
    }

    /// Takes callgrind's dumps for so many calls each.
    pub(crate) fn add_dumps(&mut self, dumps: &[Dump], calls: u64) {
        let by_label: HashMap<_, _> = dumps.iter().map(|dump| (&dump.label[..], dump)).collect();
        for dump in dumps {
            let Some(case) = dump.label.strip_suffix(" work") else { continue };
            let empty = by_label.get(&format!("{case} empty")[..]);
            let (Some(empty), Some((path, library))) = (empty, case.split_once(' ')) else {
                continue;
            };
            let cost = self.cost(path, library);
            cost.instructions = Some(per_call(dump.instructions, empty.instructions, calls));
            cost.allocations = Some(per_call(dump.allocations, empty.allocations, calls));
        }
    }

    /// Notes what could not be measured, once.
    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The numbers of a path through a library's module, if it has the path.
    pub(crate) fn get(&self, path: &str, module: &str) -> Option<Cost> {
        self.costs.get(&(path.to_owned(), module.to_owned())).copied()
    }

    /// How many times the floor's instructions a path takes.
    pub(crate) fn ratio(&self, path: &str, module: &str) -> Option<f64> {
        let floor = self.get(path, FLOOR.module)?.instructions?;
        Some(self.get(path, module)?.instructions? / floor)
    }

    fn cost(&mut self, path: &str, library: &str) -> &mut Cost {
        self.costs.entry((path.to_owned(), library.to_owned())).or_default()
    }
}

/// What a library's users call it.
pub(crate) fn name(module: &str) -> &str {
    let mut libraries = [&FLOOR, &OURS].into_iter().chain(&PEERS);
    libraries.find(|library| library.module == module).map_or(module, |library| library.name)
}

/// A path's name for people.
fn title(key: &str) -> &str {
    let mut paths = PATHS.iter().chain(&WAYS_IN);
    paths.find(|path| path.key == key).map_or(key, |path| path.title)
}

/// Counts are far below 2^52, so nothing is lost as a float.
fn per_call(work: u64, empty: u64, calls: u64) -> f64 {
    let [work, empty, calls] = [work, empty, calls].map(|count| count as f64);
    (work - empty) / calls
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Cost, Results};
    use crate::bench::callgrind::Dump;

    fn dump(label: &str, instructions: u64, allocations: u64) -> Dump {
        Dump { label: label.to_owned(), instructions, allocations }
    }

    /// One path, 1,000 instructions on the floor and 1,500 in dlbridge, and a peer that fails.
    pub(crate) fn some() -> Results {
        let mut results = Results::default();
        let calls = results.add_records(
            "version\tnumpy\t2.4.6\ntime\tnumpy-in\tfloor\t70.5\nbroken\tdlpk\tImportError: no\n\
             failed\tjax-in\trust_numpy\tTypeError: x\nabsent\ttorch\ncalls\t10\nnoise\n",
        );
        let dumps = [
            dump("numpy-in floor work", 12_000, 10),
            dump("numpy-in floor empty", 2_000, 0),
            dump("numpy-in dlbridge work", 18_000, 30),
            dump("numpy-in dlbridge empty", 3_000, 10),
            dump("numpy-in dlpark work", 18_000, 30),
        ];
        results.add_dumps(&dumps, calls.unwrap());
        results
    }

    /// One path through the floor, dlbridge and two peers: 1,000, 1,500, 3,000 and 2,000
    /// instructions.
    pub(crate) fn compared() -> Results {
        let mut results = Results::default();
        let libraries = [("floor", 10), ("dlbridge", 15), ("dlpark", 30), ("dlpk", 20)];
        for (library, thousands) in libraries {
            let label = |kind: &str| format!("numpy-in {library} {kind}");
            let dumps = [dump(&label("work"), thousands * 1000, 0), dump(&label("empty"), 0, 0)];
            results.add_dumps(&dumps, 10);
        }
        results
    }

    #[test]
    fn an_empty_call_is_subtracted() {
        let results = some();
        let wanted =
            Cost { instructions: Some(1000.0), allocations: Some(1.0), nanoseconds: Some(70.5) };
        assert_eq!(results.get("numpy-in", "floor"), Some(wanted));
        assert_eq!(results.get("numpy-in", "dlbridge").unwrap().allocations, Some(2.0));
        assert_eq!(results.ratio("numpy-in", "dlbridge"), Some(1.5));
    }

    #[test]
    fn half_a_measurement_is_none() {
        assert_eq!(some().get("numpy-in", "dlpark"), None);
        assert_eq!(some().ratio("numpy-in", "dlpark"), None);
    }

    #[test]
    fn what_is_missing_is_noted_once() {
        let mut results = some();
        results.add_records("broken\tdlpk\tImportError: no\n");
        assert_eq!(results.notes.len(), 3, "{:?}", results.notes);
        assert_eq!(results.notes[0], "dlpk: ImportError: no");
        assert_eq!(results.notes[1], "rust-numpy, JAX in, read, dropped: TypeError: x");
        assert!(results.notes[2].ends_with("--with torch"));
        assert_eq!(results.versions["numpy"], "2.4.6");
    }
}
