//! One file for each command of `cargo xtask`; each has a `run` that takes its arguments.

pub(crate) mod bench;
pub(crate) mod capi;
pub(crate) mod ci;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod fuzz;
pub(crate) mod guide;
pub(crate) mod help;
pub(crate) mod lint;
pub(crate) mod msrv;
pub(crate) mod sanitize;
pub(crate) mod setup;
pub(crate) mod test;
