//! What drives the fuzz targets, and building them for it.
//! Reading what it says does not belong here (see `progress`).
//! Invariant: guidance by coverage needs no nightly Rust: the flags for it are stable ones.

use std::env;
use std::path::{Path, PathBuf};

use crate::command;
use crate::failure::{Failure, Result};
use crate::project;
use crate::rustup;

const PACKAGE: [&str; 5] = ["--package", "dlbridge-fuzz", "--bins", "--profile", "fuzz"];
/// Lets libFuzzer see which code an input reaches, and what it is compared with.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Sees every wrong access, and what is never freed.
const ADDRESS_SANITIZER: &str = "-Zsanitizer=address";

/// What makes the inputs.
#[derive(Debug)]
pub(crate) enum Engine {
    /// libFuzzer, which learns from what inputs reach.
    LibFuzzer {
        /// The nightly Rust to build with AddressSanitizer; otherwise the usual one without.
        nightly: Option<String>,
        /// The target that it is built for.
        host: String,
    },
    /// The targets' own loop, which learns nothing.
    Random {
        /// Why not libFuzzer.
        reason: String,
    },
}

impl Engine {
    /// libFuzzer where it can be compiled.
    pub(crate) fn choose(address_sanitizer: bool) -> Result<Self> {
        let nightly = match address_sanitizer {
            false => None,
            true => Some(rustup::toolchain("nightly").ok_or_else(|| {
                Failure::new("no nightly Rust: rustup toolchain install nightly")
            })?),
        };
        let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        if cfg!(unix) && command::succeeds(command::program(&compiler).arg("--version")) {
            let host = rustup::host(nightly.as_deref())?;
            return Ok(Self::LibFuzzer { nightly, host });
        }
        let reason = match cfg!(unix) {
            true => format!("no C++ compiler `{compiler}`, which libFuzzer needs"),
            false => "libFuzzer drives them on Unix alone".to_owned(),
        };
        if nightly.is_some() { Err(Failure::new(reason)) } else { Ok(Self::Random { reason }) }
    }

    /// What it is, for the user.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::LibFuzzer { nightly: None, .. } => "libFuzzer".to_owned(),
            Self::LibFuzzer { nightly: Some(nightly), .. } => {
                format!("libFuzzer with AddressSanitizer ({nightly})")
            }
            Self::Random { reason } => format!("random inputs ({reason})"),
        }
    }

    /// Builds all targets.
    pub(crate) fn build(&self) -> Result {
        println!("engine: {}", self.describe());
        let mut cargo = match self {
            Self::LibFuzzer { nightly: Some(nightly), .. } => {
                let mut rustup = command::program("rustup");
                rustup.args(["run", nightly, "cargo"]);
                rustup
            }
            _ => command::program("cargo"),
        };
        cargo.arg("build").args(PACKAGE);
        if let Self::LibFuzzer { nightly, host } = self {
            let mut flags = COVERAGE.to_owned();
            if nightly.is_some() {
                flags = format!("{flags} {ADDRESS_SANITIZER}");
            }
            // A target of its own keeps the flags from build scripts.
            cargo.args(["--target", host]).arg("--target-dir").arg(self.folder()?);
            cargo.env("RUSTFLAGS", flags).env_remove("CARGO_ENCODED_RUSTFLAGS");
        }
        command::run(&mut cargo)
    }

    fn folder(&self) -> Result<PathBuf> {
        let target = project::target_folder()?;
        Ok(match self {
            Self::LibFuzzer { nightly: Some(_), .. } => target.join("fuzz-asan"),
            Self::LibFuzzer { nightly: None, .. } => target.join("fuzz-coverage"),
            Self::Random { .. } => target,
        })
    }

    /// The program of a target.
    pub(crate) fn built(&self, target: &str) -> Result<PathBuf> {
        let mut folder = self.folder()?;
        if let Self::LibFuzzer { host, .. } = self {
            folder.push(host);
        }
        Ok(folder.join("fuzz").join(target.to_owned() + env::consts::EXE_SUFFIX))
    }

    /// The command that runs one input again. What only AddressSanitizer saw takes its program.
    pub(crate) fn replay(&self, target: &str, input: &str) -> Result<String> {
        let below =
            |path: &Path| path.strip_prefix(project::root()).unwrap_or(path).display().to_string();
        let input = below(Path::new(input));
        if let Self::LibFuzzer { nightly: Some(_), .. } = self {
            return Ok(format!("{} {input}", below(&self.built(target)?)));
        }
        Ok(format!("cargo run --package dlbridge-fuzz --bin {target} -- {input}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Engine;
    use crate::project;

    #[test]
    fn an_input_is_replayed_without_an_engine() {
        let engine = Engine::Random { reason: String::new() };
        let input = project::path("fuzz/artifacts/gate/crash-1");
        let command = engine.replay("gate", &input.to_string_lossy()).unwrap();
        let wanted = "cargo run --package dlbridge-fuzz --bin gate -- fuzz/artifacts/gate/crash-1";
        assert_eq!(command, wanted);
    }
}
