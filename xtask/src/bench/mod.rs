//! The measurements behind `cargo xtask bench`.

mod baseline;
mod build;
mod callgrind;
mod chart;
pub(crate) mod julia;
mod libraries;
mod machine;
mod measure;
mod paths;
pub(crate) mod python;
mod report;
mod results;
pub(crate) mod rust;
mod sizes;
mod table;
mod threads;
