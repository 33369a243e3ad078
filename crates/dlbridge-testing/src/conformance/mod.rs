//! The suites that every adapter and binding runs, through the public API.

mod borrowed;
mod expected;
mod owner;
mod reader;

pub use borrowed::{HUGE, borrowed, repeated};
pub use expected::Expected;
pub use owner::owner;
pub use reader::{Refusal, reader, taker};
