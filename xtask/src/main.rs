//! `cargo xtask`: the project's own commands, `cargo xtask help` lists them.
//!
//! Only the choice of a command lives here; each one has a file under `commands/`.

mod args;
mod bench;
mod command;
mod commands;
mod counted;
mod examples;
mod failure;
mod freethreaded;
mod fuzz;
mod guide;
mod house;
mod julia;
mod libpython;
mod manifest;
mod minimal;
mod project;
mod python;
mod requirements;
mod rustup;
mod sanitize;
mod semver;
mod steps;
mod tally;
mod venv;
mod wheel;

use std::process::ExitCode;

use args::Args;
use failure::{Failure, Result};

fn main() -> ExitCode {
    let mut given = std::env::args().skip(1);
    let name = given.next().unwrap_or_else(|| "help".to_owned());
    match dispatch(&name, Args::new(given)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn dispatch(name: &str, args: Args) -> Result {
    if args.asks_for_help() {
        return commands::help::run();
    }
    match name {
        "bench" => commands::bench::run(args),
        "capi" => commands::capi::run(args),
        "ci" => commands::ci::run(args),
        "demo" => commands::demo::run(args),
        "doctor" => commands::doctor::run(args),
        "fuzz" => commands::fuzz::run(args),
        "guide" => commands::guide::run(args),
        "help" | "--help" | "-h" => commands::help::run(),
        "lint" => commands::lint::run(args),
        "msrv" => commands::msrv::run(args),
        "sanitize" => commands::sanitize::run(args),
        "setup" => commands::setup::run(args),
        "test" => commands::test::run(args),
        _ => Err(Failure::usage(format!("unknown command `{name}`"))),
    }
}
