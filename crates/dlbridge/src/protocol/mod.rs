//! What a producer and a consumer agree on before memory crosses: version, device, copy and stream, as DLPack and the array API
//! standard have it. For the crates of this project; no function calls Python.
//!
//! Each function takes plain values and decides; `dlbridge-pyo3` and `dlbridge-capi` call the other side.
//!
//! | module | decides |
//! | --- | --- |
//! | [`call`] | how a producer is asked, what follows when it fails, and whether its answer is copied; how a consumer's request is answered |
//! | [`stream`] | which numbers name a stream of a device |
//! | [`capsule`] | which name a capsule has, before and after it was consumed |
//! | [`table`] | which exchange table may be called in place of `__dlpack__` |
//! | [`attached`] | how a thread is asked whether it is attached to Python |

use std::fmt;

pub mod attached;
pub mod call;
pub mod capsule;
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
