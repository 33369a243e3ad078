//! Streams of devices: their numbers, and the work that memory is ready after.

mod driver;
mod number;
mod ready;

pub(crate) use driver::device_of_pointer;
pub use number::Stream;
pub(crate) use ready::{Ready, settle};
