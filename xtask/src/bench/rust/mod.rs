//! `cargo xtask bench rust`: what is measured in Rust alone.
//! What is measured is decided in `benches/rust`, a program of its own; this builds and runs it, and
//! makes tables and charts of the lines that it prints.

mod reads;
mod shares;
mod views;

use std::path::PathBuf;

use crate::args::Args;
use crate::bench::report::{self, Section};
use crate::bench::{machine, sizes, threads};
use crate::command;
use crate::failure::Result;
use crate::project;
use crate::steps::Steps;

/// The program, which is no member of the workspace.
const MANIFEST: &str = "benches/rust/Cargo.toml";
const PROGRAM: &str = "dlbridge-bench-rust";
/// What can be measured; shares need other crates, which take minutes to build.
const PARTS: [&str; 5] = ["shares", "views", "reads", "sizes", "threads"];
const SLOW_TO_BUILD: &str = PARTS[0];

/// Measures all parts, or the one that is named; `--write` keeps what was found.
pub(crate) fn run(mut args: Args) -> Result {
    let write = args.flag("--write");
    let chosen = args.choice(&PARTS)?;
    args.finish()?;
    let mut steps = Steps::default();
    measure(chosen, write, &mut steps);
    steps.finish()
}

/// Measures in steps.
pub(crate) fn measure(chosen: Option<&str>, write: bool, steps: &mut Steps) {
    let mut program = PathBuf::new();
    let built = steps.check("build the measurements in Rust", || {
        program = build(chosen.is_none_or(|part| part == SLOW_TO_BUILD))?;
        Ok(())
    });
    if !built {
        return;
    }
    let machine = machine::describe_rust().join(". ");
    for part in PARTS.into_iter().filter(|part| chosen.is_none_or(|chosen| chosen == *part)) {
        steps.check(&format!("measure {part} in Rust"), || {
            let lines = || command::output(command::program(&program).arg(part));
            let section = match part {
                "views" => views::measure(&program)?,
                "reads" => reads::section(&lines()?),
                "sizes" => sizes::section("Rust", &lines()?)?,
                "threads" => threads::section("Rust", &lines()?, &machine::cores())?,
                _ => Section::without_chart("Rust: shares", shares::measure(&program)?),
            };
            println!("{}", section.body);
            if write {
                return report::keep(&section, &machine);
            }
            Ok(())
        });
    }
}

fn build(with_crates: bool) -> Result<PathBuf> {
    let folder = project::target_folder()?.join("bench-rust");
    let mut cargo = command::program("cargo");
    cargo.args(["build", "--release", "--locked", "--manifest-path", MANIFEST, "--target-dir"]);
    cargo.arg(&folder);
    if !with_crates {
        cargo.arg("--no-default-features");
    }
    command::run(&mut cargo)?;
    Ok(folder.join("release").join(PROGRAM))
}
