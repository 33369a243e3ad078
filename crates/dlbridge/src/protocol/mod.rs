//! What a producer and a consumer agree on before memory crosses: version, device, copy and stream, as DLPack and the array API
//! standard have it. For libraries with an interface of their own, in C or another language; no function calls Python.
//!
//! Each function takes plain values and decides; its user calls the other side. The crates `dlbridge-pyo3` and `dlbridge-capi`
//! are two of them.
//!
//! | module | decides |
//! | --- | --- |
//! | [`export`] | how a consumer's request is answered |
//! | [`import`] | how a producer is asked, what follows when it fails, and whether its answer is copied |
//! | [`stream`] | which numbers name a stream of a device |
//!
//! A library that gives its arrays to consumers answers a request so:
//!
//! ```
//! use dlbridge::protocol::export::{Answer, Request};
//! use dlbridge::{Device, Tensor};
//!
//! enum Raw {
//!     Versioned(*mut dlbridge::sys::DLManagedTensorVersioned),
//!     Legacy(*mut dlbridge::sys::DLManagedTensor),
//! }
//!
//! /// What a function of C returns to a consumer that reads `max_version`, wants the memory on a device, and may insist on a
//! /// copy, or on none.
//! fn give(tensor: Tensor, request: Request) -> Result<Raw, Box<dyn std::error::Error>> {
//!     let Answer { versioned, copy, .. } = request.answer(tensor.device())?;
//!     let tensor = if copy { tensor.to_contiguous()? } else { tensor };
//!     Ok(if versioned {
//!         Raw::Versioned(tensor.into_raw())
//!     } else {
//!         Raw::Legacy(tensor.into_raw_legacy()?)
//!     })
//! }
//!
//! let new = Request { max_version: Some((1, 3)), ..Request::default() };
//! let Ok(Raw::Versioned(raw)) = give(Tensor::from(vec![1.0_f32]), new) else { panic!() };
//! // SAFETY: just made, with no other owner.
//! drop(unsafe { Tensor::from_raw(raw) });
//! // A consumer that names no version reads the legacy ABI.
//! let Ok(Raw::Legacy(raw)) = give(Tensor::from(vec![1.0_f32]), Request::default()) else { panic!() };
//! // SAFETY: the same.
//! drop(unsafe { Tensor::from_raw(raw) });
//!
//! let on_gpu = Request { dl_device: Some(Device::cuda(0)), ..new };
//! let refusal = give(Tensor::from(vec![1.0_f32]), on_gpu).err().unwrap();
//! assert_eq!(refusal.to_string(), "dl_device: expected cpu, where the memory is, found cuda:0");
//! ```
//!
//! A consumer decides what follows the memory that it got:
//!
//! ```
//! use dlbridge::protocol::import::{CopyMode, Delivery};
//! use dlbridge::protocol::stream;
//! use dlbridge::{Device, Tensor};
//!
//! /// A tensor on the host, that no other code writes where a copy is asked for.
//! fn delivered(tensor: Tensor, copy: CopyMode) -> Result<Tensor, Box<dyn std::error::Error>> {
//!     match copy.delivery(tensor.device(), tensor.is_copied(), Some(Device::CPU)) {
//!         Delivery::Keep => {
//!             copy.check(tensor.is_copied())?;
//!             Ok(tensor)
//!         }
//!         Delivery::CopyOnHost => Ok(tensor.to_contiguous()?),
//!         Delivery::Call(device) => Err(format!("ask the producer for {device}").into()),
//!     }
//! }
//! let shared = Tensor::from(Tensor::from(vec![1_u8]).into_shared());
//! assert_eq!(delivered(shared, CopyMode::Always)?.as_slice::<u8>()?, [1]);
//!
//! // Which number a producer is told, if any: `None` for a device without streams.
//! assert_eq!(stream::number_on(None, Device::cuda(0))?, Some(1));
//! assert_eq!(stream::number_on(None, Device::CPU)?, None);
//! assert!(stream::number_on(Some(0), Device::cuda(0)).is_err(), "0 could mean any of three");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

#[doc(hidden)]
pub mod attached;
#[doc(hidden)]
pub mod capsule;
pub mod export;
pub mod import;
pub mod stream;
#[doc(hidden)]
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
