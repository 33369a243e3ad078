//! Streams of tensors between processes. On one machine (Linux), slots of memory are loaned, filled, sent, read and used
//! again. Elsewhere, values travel as bytes.

mod api;
mod buffer;
mod bytes;
mod connection;
mod loan;
mod message;
mod wire;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod end;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod held;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod lease;
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), path = "elsewhere.rs")]
mod pool;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod raw;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod reading;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod ring;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod writing;

pub use api::Channel;
pub use loan::{Loan, Ready};
pub use message::Message;
pub use pool::Pool;

/// The limit of a pool that is given none, in bytes.
const LIMIT: usize = 256 << 20;
