//! The measurements behind `cargo xtask bench`.

pub(crate) mod rust;
