//! Streams of tensors between two processes (Linux): slots of memory are loaned, filled, sent, read and used again.
//!
//! Files, each of which uses only those above it:
//!
//! | file | job |
//! | --- | --- |
//! | `wire.rs` | frames as bytes: a head, a description of tensors, metadata, small values |
//! | `transport.rs` | frames and descriptors through a socket that never waits |
//! | `peer.rs` | slots of the other end, mapped to be read |
//! | `slots.rs` | slots of this end, and the leases of readers |
//! | `reading.rs`, `writing.rs` | the halves of an end: frames of a transport, slots in one direction each |
//! | `end.rs` | an end: both halves, and the leases that they share |
//! | `loan.rs`, `message.rs`, `pool.rs`, `channel.rs` | the public types |
//!
//! Locks, in the order in which a thread takes them: the reader of an end, its writer, the leases that it gave, the leases
//! that it is to return, the slots of a pool. The reader and the writer are never held together: reading sends nothing, and
//! sending reads nothing. No lock is held while a call waits.

#[allow(clippy::module_inception, reason = "the file of the type `Channel`")]
mod channel;
mod loan;
mod message;
mod pool;

#[cfg_attr(not(any(target_os = "linux", target_os = "android")), path = "elsewhere.rs")]
mod end;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod peer;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod reading;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod slots;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod transport;
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
mod wire;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod writing;

pub use channel::Channel;
pub use loan::{Loan, Ready};
pub use message::Message;
pub use pool::Pool;

/// The limit of a pool that is given none, in bytes.
const LIMIT: usize = 256 << 20;
