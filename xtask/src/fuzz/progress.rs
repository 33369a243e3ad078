//! What a fuzzer says while it runs: how far it is, and what it found.
//! Starting it does not belong here.

use std::time::{Duration, Instant};

/// How often progress is shown.
const NEWS: Duration = Duration::from_secs(5);
/// Lines that say nothing to a person: progress, statistics, the input once more in other forms.
const QUIET: [&str; 10] = [
    "#",
    "INFO: ",
    "WARNING: ",
    "stat::",
    "Done ",
    "MS: ",
    "0x",
    "Base64: ",
    "\"",
    "artifact_prefix",
];
/// What stands before the path of an input that found something.
const WRITTEN: &str = "Test unit written to ";

/// What was said so far.
#[derive(Debug)]
pub(crate) struct Progress {
    target: String,
    inputs: u64,
    /// Places in the code that were reached; only libFuzzer knows.
    edges: Option<u64>,
    finding: Option<String>,
    shown: Instant,
}

impl Progress {
    pub(crate) fn new(target: &str) -> Self {
        let target = target.to_owned();
        Self { target, inputs: 0, edges: None, finding: None, shown: Instant::now() }
    }

    /// Takes one line, and shows what is worth it.
    pub(crate) fn read(&mut self, line: &str) {
        self.note(line);
        if !QUIET.iter().any(|start| line.starts_with(start)) {
            println!("{line}");
        } else if self.shown.elapsed() > NEWS {
            self.shown = Instant::now();
            println!("{}: {} so far", self.target, self.sum());
        }
    }

    fn note(&mut self, line: &str) {
        if let Some(number) = after(line, "#").or_else(|| after(line, "executed_units: ")) {
            self.inputs = self.inputs.max(number);
        }
        if let Some((_, input)) = line.split_once(WRITTEN) {
            self.finding = Some(input.trim().to_owned());
        }
        if line.starts_with('#') {
            self.edges = after(line, " cov: ").or(self.edges);
        }
    }

    /// The numbers.
    pub(crate) fn sum(&self) -> String {
        match self.edges {
            Some(edges) => format!("{} inputs, {edges} places in the code reached", self.inputs),
            None => format!("{} inputs", self.inputs),
        }
    }

    /// The number of findings, of which the first ends a run.
    pub(crate) fn findings(&self) -> &'static str {
        if self.finding.is_some() { "1 finding" } else { "0 findings" }
    }

    /// The input that found something.
    pub(crate) fn finding(&self) -> Option<&str> {
        self.finding.as_deref()
    }
}

/// The number after a word.
fn after(line: &str, word: &str) -> Option<u64> {
    let rest = line.split_once(word)?.1.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn lines_of_libfuzzer_are_understood() {
        let mut progress = Progress::new("gate");
        progress.note("#27000\tNEW    cov: 11378 ft: 21267 corp: 1101/8216b lim: 11 exec/s: 574");
        assert_eq!(progress.sum(), "27000 inputs, 11378 places in the code reached");
        progress.note("stat::number_of_executed_units: 28123");
        assert_eq!(progress.sum(), "28123 inputs, 11378 places in the code reached");
        assert_eq!((progress.findings(), progress.finding()), ("0 findings", None));
        progress.note("artifact_prefix='a/'; Test unit written to a/crash-12");
        assert_eq!((progress.findings(), progress.finding()), ("1 finding", Some("a/crash-12")));
    }

    #[test]
    fn lines_of_the_random_loop_are_understood() {
        let mut progress = Progress::new("gate");
        progress.note("#512");
        assert_eq!(progress.sum(), "512 inputs");
    }
}
