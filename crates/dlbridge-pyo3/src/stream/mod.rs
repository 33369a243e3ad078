//! Streams of devices: their numbers, and the work after which memory is ready.

mod driver;
mod number;
mod ready;

pub(crate) use driver::device_of_pointer;
pub use number::Stream;
pub(crate) use ready::{Ready, settle, settle_host};
