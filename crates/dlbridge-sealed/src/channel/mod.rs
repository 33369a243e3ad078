//! Streams of tensors between processes: slots of memory that are loaned, filled, sent, read and used again.

mod end;
mod loan;
mod message;
mod pool;
mod raw;
mod reading;
mod wire;
mod writing;

pub use end::Channel;
pub use loan::{Loan, Ready};
pub use message::Message;
pub use pool::Pool;

/// The limit of a pool that is given none, in bytes.
const LIMIT: usize = 256 << 20;
