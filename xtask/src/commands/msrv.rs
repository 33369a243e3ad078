//! `cargo xtask msrv`: the libraries with the oldest Rust that they promise to build with.
//! Tests do not belong here: what they need may ask for a newer Rust.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::Args;
use crate::command;
use crate::commands::setup;
use crate::failure::{Failure, Result};
use crate::manifest;
use crate::project;
use crate::rustup;
use crate::steps::{Outcome, Steps};
use crate::venv::Venv;

/// Unpacks an old compiler where rustup has none.
const UNPACK: &str = "scripts/get-rust-msrv.sh";

/// Checks the libraries.
pub(crate) fn run(args: Args) -> Result {
    args.finish()?;
    let venv = setup::ready(&[])?;
    let mut steps = Steps::default();
    steps.step("oldest Rust", || check(&venv));
    steps.finish()
}

/// Checks the libraries, or tells why that cannot be done here.
pub(crate) fn check(venv: &Venv) -> Result<Outcome> {
    let version = manifest::oldest_rust()?;
    let compiler = match compiler(&version)? {
        Compiler::None(reason) => return Ok(Outcome::Skipped(reason)),
        compiler => compiler,
    };
    let folder = project::target_folder()?.join("msrv-check");
    for library in manifest::libraries()? {
        let mut cargo = compiler.cargo(venv);
        cargo.args(["check", "--lib", "--package", library.name()?]);
        cargo.args(["--features", &library.features_for_rust(&version).join(",")]);
        command::run(cargo.arg("--target-dir").arg(&folder))?;
    }
    Ok(Outcome::Done)
}

/// Where an old compiler comes from.
enum Compiler {
    /// A toolchain of rustup.
    Toolchain(String),
    /// A program.
    Program(PathBuf),
    /// There is none, and why.
    None(String),
}

impl Compiler {
    /// A cargo that compiles with it.
    fn cargo(&self, venv: &Venv) -> Command {
        match self {
            Self::Toolchain(name) => {
                let mut rustup = venv.program("rustup");
                rustup.args(["run", name, "cargo"]);
                rustup
            }
            Self::Program(rustc) => {
                let mut cargo = venv.program("cargo");
                cargo.env("RUSTC", rustc);
                cargo
            }
            Self::None(_) => venv.program("cargo"),
        }
    }
}

fn compiler(version: &str) -> Result<Compiler> {
    if let Some(name) = rustup::toolchain(version) {
        return Ok(Compiler::Toolchain(name));
    }
    let folder = project::target_folder()?.join("msrv");
    match unpack(&folder, version) {
        Ok(rustc) => Ok(Compiler::Program(rustc)),
        // CI promises the check; elsewhere a missing compiler is no fault of the change.
        Err(failure) if env::var_os("CI").is_some() => Err(failure),
        Err(failure) => Ok(Compiler::None(format!(
            "there is no Rust {version}: get it by `rustup toolchain install {version}` ({})",
            failure.message()
        ))),
    }
}

fn unpack(folder: &Path, version: &str) -> Result<PathBuf> {
    command::run(command::program("sh").arg(UNPACK).arg(folder))?;
    let rustc = folder.join("bin/rustc");
    let found = command::output(command::program(&rustc).arg("--version"))?;
    if found.starts_with(&format!("rustc {version}.")) {
        return Ok(rustc);
    }
    Err(Failure::new(format!("{UNPACK} gives {}, wanted {version}", found.trim_end())))
}
