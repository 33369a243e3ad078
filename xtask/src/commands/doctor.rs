//! `cargo xtask doctor`: whether a framework keeps to the standard.

use crate::failure::{Failure, Result};

/// Says that there is no doctor yet.
pub(crate) fn run() -> Result {
    Err(Failure::not_built_yet("doctor"))
}
