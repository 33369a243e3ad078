//! The suites that every adapter and binding runs.
//! Making odd tensors by hand does not belong here (see [`Foreign`](super::Foreign)).
//! Invariant: a suite uses the public API alone, and panics with what was found and wanted.

mod borrowed;
mod expected;
mod owner;
mod reader;
mod repeated;
mod taker;

pub use borrowed::borrowed;
pub use expected::Expected;
pub use owner::owner;
pub use reader::{Refusal, reader};
pub use repeated::{HUGE, repeated};
pub use taker::taker;
