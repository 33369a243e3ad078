//! Streams of devices: their numbers, and the work after which memory is ready.

mod number;
mod ready;

pub use crate::ffi::driver::Stream;
pub(crate) use ready::{Ready, settle, settle_host};
