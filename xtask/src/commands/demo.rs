//! `cargo xtask demo`: the main job, shown on whatever is installed.

use crate::args::Args;
use crate::command;
use crate::commands::setup;
use crate::failure::Result;
use crate::manifest::WHEEL;
use crate::wheel;

/// Builds the wheel and runs `dlbridge.demo`, which gets all arguments that are not ours.
pub(crate) fn run(mut args: Args) -> Result {
    let venv = setup::ready(&args.list(setup::WITH)?)?;
    wheel::build_and_install(&venv, WHEEL)?;
    command::run(venv.run_python().args(["-m", "dlbridge.demo"]).args(args.rest()))
}
