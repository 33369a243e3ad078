//! The suites that every adapter and binding runs, through the public API.

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
