//! `cargo xtask lint`: every check that runs no tests.

use std::process::Command;

use crate::args::Args;
use crate::command;
use crate::commands::{msrv, setup};
use crate::failure::Result;
use crate::guide;
use crate::house;
use crate::manifest;
use crate::minimal;
use crate::project;
use crate::requirements::{GUIDE, LINT};
use crate::semver;
use crate::steps::Steps;
use crate::venv::Venv;

/// Turns warnings into errors, for clippy.
const DENY: [&str; 3] = ["--", "-D", "warnings"];

/// Runs all checks, also after one has failed.
pub(crate) fn run(args: Args) -> Result {
    args.finish()?;
    let venv = setup::ready(&[LINT.to_owned(), GUIDE.to_owned()])?;
    let mut steps = Steps::default();
    steps.check("rustfmt", || command::run(&mut cargo(&venv, &["fmt", "--all", "--check"])));
    steps.check("clippy", || clippy(&venv, &["--workspace", "--all-targets", "--all-features"]));
    steps.check("each feature alone", || each_feature(&venv));
    steps.check("cargo doc", || docs(&venv));
    python(&venv, &mut steps);
    steps.check("house rules", house::check_files);
    steps.step("feature table", house::check_feature_table);
    steps.check("guide", || guide::build(&venv).map(|_| ()));
    steps.step("oldest Rust", || msrv::check(&venv));
    steps.step("oldest dependencies", || minimal::check(&venv));
    steps.step("public API", || semver::check(&venv));
    steps.finish()
}

fn cargo(venv: &Venv, args: &[&str]) -> Command {
    let mut cargo = venv.program("cargo");
    cargo.args(args);
    cargo
}

fn clippy(venv: &Venv, selection: &[&str]) -> Result {
    command::run(cargo(venv, &["clippy"]).args(selection).args(DENY))
}

/// Each library that has features: with none, with each one, and with all.
fn each_feature(venv: &Venv) -> Result {
    for library in manifest::libraries()? {
        let features = library.features();
        if features.is_empty() {
            continue;
        }
        let package = ["--package", library.name()?, "--lib"];
        clippy(venv, &[&package[..], &["--no-default-features"]].concat())?;
        for feature in &features {
            let alone = ["--no-default-features", "--features", feature];
            clippy(venv, &[&package[..], &alone].concat())?;
        }
        clippy(venv, &[&package[..], &["--all-features"]].concat())?;
    }
    Ok(())
}

fn docs(venv: &Venv) -> Result {
    let mut doc = cargo(venv, &["doc", "--workspace", "--all-features", "--no-deps"]);
    command::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

fn python(venv: &Venv, steps: &mut Steps) {
    steps.check("ruff check", || command::run(&mut module(venv, &["ruff", "check"])));
    steps.check("ruff format", || command::run(&mut module(venv, &["ruff", "format", "--check"])));
    steps.check("mypy", || {
        // From where its configuration, which names the files, lies.
        command::run(module(venv, &["mypy"]).current_dir(project::path("python")))
    });
}

fn module(venv: &Venv, words: &[&str]) -> Command {
    let mut python = venv.run_python();
    python.arg("-m").args(words);
    python
}
