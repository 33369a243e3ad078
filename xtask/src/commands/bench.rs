//! `cargo xtask bench`: the measurements.

use crate::args::Args;
use crate::bench::{python, rust};
use crate::failure::Result;

/// Runs the benchmarks of one language, Rust unless another is named; or `--check`.
pub(crate) fn run(mut args: Args) -> Result {
    if args.flag("--check") {
        return python::check(args);
    }
    match args.choice(&["rust", "python"])? {
        Some("python") => python::run(args),
        _ => rust::run(args),
    }
}
