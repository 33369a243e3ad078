//! Running `measure.py`, by itself and under callgrind.
//! What the numbers mean does not belong here.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::bench::build::{SOURCES, bench_folder};
use crate::bench::callgrind::Dump;
use crate::bench::libraries::Library;
use crate::bench::results::Results;
use crate::command;
use crate::failure::{Failure, Result};
use crate::project;
use crate::steps::Outcome;
use crate::venv::Venv;

/// So that a run does what the last one did, with one thread.
const SETTINGS: [(&str, &str); 4] = [
    ("PYTHONHASHSEED", "0"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
];

/// What is measured, and with what.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    /// The environment.
    pub(crate) venv: &'a Venv,
    /// Where the built modules lie.
    pub(crate) modules: &'a Path,
    /// The libraries that could be built.
    pub(crate) libraries: &'a [&'a Library],
}

impl Bench<'_> {
    /// Times the paths of a framework, if it is installed.
    pub(crate) fn time(&self, framework: &str, results: &mut Results) -> Result<Outcome> {
        let records = self.measure(self.venv.run_python(), framework, &[])?;
        results.add_records(&records);
        if results.versions.contains_key(framework) {
            return Ok(Outcome::Done);
        }
        Ok(Outcome::Skipped(format!("not installed: --with {framework} installs it")))
    }

    /// Counts the instructions of a framework's paths.
    pub(crate) fn count(&self, framework: &str, results: &mut Results) -> Result {
        let folder = bench_folder()?.join("callgrind").join(framework);
        let _ = fs::remove_dir_all(&folder);
        project::make_folder(&folder)?;
        let mut valgrind = self.venv.program("valgrind");
        valgrind.args(["--tool=callgrind", "--instr-atstart=no", "--quiet"]);
        valgrind.arg(format!("--callgrind-out-file={}", folder.join("dump").display()));
        valgrind.arg(self.venv.python());
        let records = self.measure(valgrind, framework, &["--count"])?;
        if let Some(calls) = results.add_records(&records) {
            results.add_dumps(&dumps(&folder)?, calls);
        }
        Ok(())
    }

    /// Runs the script and gives its records.
    fn measure(&self, mut python: Command, framework: &str, flags: &[&str]) -> Result<String> {
        let libraries: Vec<_> = self.libraries.iter().map(|library| library.module).collect();
        python
            .arg(project::path(SOURCES).join("measure.py"))
            .args(["--framework", framework, "--libraries", &libraries.join(",")])
            .args(flags)
            .envs(SETTINGS)
            .env("PYTHONPATH", self.modules);
        command::output(&mut python)
    }
}

/// The dumps in a folder that a program asked for.
fn dumps(folder: &Path) -> Result<Vec<Dump>> {
    let entries = fs::read_dir(folder)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", folder.display())))?;
    let texts = entries.flatten().filter_map(|entry| fs::read(entry.path()).ok());
    Ok(texts.filter_map(|text| Dump::parse(&String::from_utf8_lossy(&text))).collect())
}
