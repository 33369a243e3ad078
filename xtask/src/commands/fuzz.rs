//! `cargo xtask fuzz`: hostile descriptors and layouts.

use crate::failure::{Failure, Result};

/// Says that there are no fuzz targets yet.
pub(crate) fn run() -> Result {
    Err(Failure::not_built_yet("fuzz"))
}
