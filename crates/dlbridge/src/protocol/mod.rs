//! The decisions of DLPack's Python protocol, for every library that speaks it.
//!
//! Each function takes plain values and decides; calling Python is up to its user: `dlbridge-pyo3`
//! through PyO3, `dlbridge-capi` through functions that it finds at run time.
//!
//! | module | decides |
//! | --- | --- |
//! | [`attached`] | which functions tell whether a thread is attached |
//! | [`capsule`] | what a capsule's name says of its tensor |
//! | [`import`] | how `__dlpack__` is called, what follows when it fails, and whether its answer is copied |
//! | [`export`] | how a call of our own `__dlpack__` is answered |
//! | [`stream`] | which numbers name a stream of a device |
//! | [`table`] | which exchange table may be called in place of a type's `__dlpack__` |

use std::fmt;

pub mod attached;
pub mod capsule;
pub mod export;
pub mod import;
pub mod stream;
pub mod table;

use dlbridge_sys::{DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};

use crate::{Device, DeviceKind};

/// The newest version that this library reads: the value of `max_version`.
pub const VERSION: (u32, u32) = (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);

/// A request that cannot be granted. In Python it is a `BufferError`, never a `TypeError`, which
/// consumers take for an unknown keyword.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// The device of the pair that `__dlpack_device__` returns and `dl_device` takes. Paddle says `None`
/// for ordinal 0.
#[must_use]
pub fn device(kind: i32, id: Option<i32>) -> Device {
    Device::new(DeviceKind(kind), id.unwrap_or(0))
}
