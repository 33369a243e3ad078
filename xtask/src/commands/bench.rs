//! `cargo xtask bench`: the measurements.

use crate::args::Args;
use crate::bench::{julia, python, rust};
use crate::failure::Result;
use crate::steps::Steps;

/// Runs the benchmarks of one language, or of all; or `--check`.
pub(crate) fn run(mut args: Args) -> Result {
    if args.flag("--check") {
        return python::check(args);
    }
    match args.leading(&["rust", "python", "julia"]) {
        Some("rust") => rust::run(args),
        Some("python") => python::run(args),
        Some(_) => julia::run(args),
        None => all(args),
    }
}

/// Everything that can be measured here, one after the other.
fn all(mut args: Args) -> Result {
    let options = python::Options::take(&mut args)?;
    args.finish()?;
    let mut steps = Steps::default();
    rust::measure(None, options.write(), &mut steps);
    if let Err(failure) = python::measure(&options, &mut steps) {
        steps.skip("measure in Python", failure.message());
    }
    julia::measure(options.write(), &mut steps);
    steps.finish()
}
