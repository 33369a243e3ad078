//! `cargo xtask bench`: the measurements.

use crate::args::Args;
use crate::bench;
use crate::failure::{Failure, Result};

/// Runs the benchmarks of one language, Rust unless another is named.
pub(crate) fn run(mut args: Args) -> Result {
    match args.choice(&["rust", "python"])? {
        Some("python") => Err(Failure::not_built_yet("bench python")),
        _ => bench::rust::run(args),
    }
}
