//! The example programs: each one checks itself, so running it is a test.
//! Building does not belong here: `cargo test` has built those in Rust.

use std::path::PathBuf;

use crate::command;
use crate::failure::{Failure, Result};
use crate::libpython::Libpython;
use crate::manifest;
use crate::project;
use crate::venv::Venv;

/// The source of an example.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Example {
    source: PathBuf,
}

/// Every example of the repository, except those in the folders of members left out.
pub(crate) fn all(left_out: &[manifest::Member]) -> Result<Vec<Example>> {
    let mut folders = vec![project::path("examples"), project::path("python/examples")];
    folders.extend(manifest::libraries()?.iter().map(|member| member.folder.join("examples")));
    folders.retain(|folder| !left_out.iter().any(|member| folder.starts_with(&member.folder)));
    let sources = folders
        .iter()
        .flat_map(|folder| ["rs", "py"].map(|extension| project::files_in(folder, extension)))
        .flatten();
    Ok(sources.map(|source| Example { source }).collect())
}

impl Example {
    /// The path of the source in the repository.
    pub(crate) fn name(&self) -> String {
        let source = self.source.strip_prefix(project::root()).unwrap_or(&self.source);
        source.display().to_string()
    }

    /// Runs the example; it fails by its exit status.
    pub(crate) fn run(&self, venv: &Venv, libpython: &Libpython) -> Result {
        if self.source.extension().is_some_and(|extension| extension == "py") {
            return command::run(venv.run_python().arg(&self.source));
        }
        command::run(libpython.lend(&mut venv.program(self.built()?)))
    }

    fn built(&self) -> Result<PathBuf> {
        let name = project::stem(&self.source) + std::env::consts::EXE_SUFFIX;
        let program = project::debug_folder()?.join("examples").join(name);
        if program.is_file() {
            return Ok(program);
        }
        Err(Failure::new(format!("{} is no crate's example: nothing built it", self.name())))
    }
}
