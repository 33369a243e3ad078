//! `cargo xtask guide`: the guide as pages for a browser.

use crate::args::Args;
use crate::commands::setup;
use crate::failure::Result;
use crate::guide;
use crate::requirements::GUIDE;

/// Checks the guide, renders it into `target/guide`, and tells where it begins.
pub(crate) fn run(args: Args) -> Result {
    args.finish()?;
    let venv = setup::ready(&[GUIDE.to_owned()])?;
    println!("{}", guide::build(&venv)?.display());
    Ok(())
}
