//! `cargo xtask bench`: the measurements.

use crate::args::Args;
use crate::bench::{python, rust};
use crate::commands::setup;
use crate::failure::Result;
use crate::julia;

/// Runs the benchmarks of one language, Rust unless another is named; or `--check`.
pub(crate) fn run(mut args: Args) -> Result {
    if args.flag("--check") {
        return python::check(args);
    }
    match args.choice(&["rust", "python", "julia"])? {
        Some("python") => python::run(args),
        Some("julia") => {
            args.finish()?;
            julia::bench(&setup::ready(&[])?)
        }
        _ => rust::run(args),
    }
}
