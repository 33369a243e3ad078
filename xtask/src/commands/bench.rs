//! `cargo xtask bench`: the measurements.

use crate::args::Args;
use crate::command;
use crate::commands::setup;
use crate::failure::{Failure, Result};
use crate::julia;

/// Runs the benchmarks of one language, Rust unless another is named.
pub(crate) fn run(mut args: Args) -> Result {
    match args.choice(&["rust", "python", "julia"])? {
        Some("python") => Err(Failure::not_built_yet("bench python")),
        Some("julia") => {
            args.finish()?;
            julia::bench(&setup::ready(&[])?)
        }
        _ => command::run(
            command::program("cargo").args(["bench", "--package", "dlbridge"]).args(args.rest()),
        ),
    }
}
