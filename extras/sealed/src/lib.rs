//! Tensors that other processes of the machine read without a copy (Linux): kept in sealed memory files, or sent through
//! a channel. And tensors of [safetensors files](safetensors_0_8), on every system.
//!
//! A [`Builder`] declares tensors and allocates them in a memory file (memfd) without a name. They
//! are filled in place, then sealed: the kernel refuses every change of the file from then on, in
//! every process. Its descriptor goes to other processes, over a Unix socket for instance.
//!
//! | I have | I want | call |
//! | --- | --- | --- |
//! | values to compute | a sealed file into which they are written | [`Builder`], [`Filling::seal`] |
//! | a tensor, some tensors | a sealed copy | [`SealedTensors::try_from`], [`seal`] |
//! | a safetensors file | a sealed copy | [`seal_file`] |
//! | a safetensors file | its tensors, mapped or read | [`Archive`](safetensors_0_8::Archive) |
//! | tensors | a safetensors file | [`save`](safetensors_0_8::save()) |
//! | sealed tensors, a Unix socket | them in another process | `SealedTensors::send`, `receive` |
//! | sealed tensors, any other message | bytes that open them in another process | `SealedTensors::handle`, `open_handle` |
//! | sealed tensors | their descriptor | `as_fd`, `OwnedFd::from` |
//! | a descriptor that was received | its tensors, after a check | [`SealedTensors::try_from`] |
//! | sealed tensors | a tensor to read | [`SealedTensors::tensor`] |
//! | sealed tensors | a tensor to write, while the file keeps its values | [`SealedTensors::private`] |
//! | many sealed tensors | the same for all of them | [`SealedTensors::private_tensors`] |
//! | a stream of tensors, and a socket | memory to fill, and to use again | [`Channel::loan`], [`Loan::send`] |
//! | the other end of that socket | the tensors | [`Channel::receive`] |
//! | a message | a copy that outlives the stream | [`Message::to_owned`], [`Message::seal`] |
//!
//! Use sealed files for values that are kept or read many times, because their reader gets slices. Use a `Channel` for a
//! stream, because it uses its memory again: no page is allocated or cleared for a message. Its reader gets class
//! [`Shared`](dlbridge::Access::Shared), since the sender could still write. Arrays between machines are the work of Ray, Dask or gRPC.
//!
//! ```
//! # #[cfg(target_os = "linux")]
//! # fn main() -> Result<(), dlbridge::Error> {
//! use std::os::fd::OwnedFd;
//!
//! use dlbridge::{Access, Tensor};
//! use dlbridge_sealed::SealedTensors;
//!
//! let descriptor = OwnedFd::from(SealedTensors::try_from(&Tensor::from(vec![1.0_f32, 2.0]))?);
//!
//! // In another process, to which the descriptor was sent:
//! let sealed = SealedTensors::try_from(descriptor)?;
//! let tensor = sealed.tensor("tensor")?;
//! assert_eq!(tensor.access(), Access::Frozen);
//! assert_eq!(tensor.as_slice::<f32>()?, [1.0, 2.0]);
//!
//! let mut private = sealed.private("tensor")?;
//! private.as_slice_mut::<f32>()?[0] = 5.0;
//! assert_eq!(tensor.as_slice::<f32>()?, [1.0, 2.0]);
//! # Ok(())
//! # }
//! # #[cfg(not(target_os = "linux"))]
//! # fn main() {}
//! ```
//!
//! The file has the safetensors layout, so that every reader of that format reads it. Dtypes that the format lacks,
//! and on a big-endian machine all that are wider than a byte, are bytes to such a reader.
//! `SAFETY.md` of the repository explains why sealed memory is [`Frozen`](dlbridge::Access::Frozen), even from an
//! untrusted sender.
//! On systems other than Linux, every call is an error but those of [`safetensors_0_8`].

#![cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(unused_mut, reason = "the types of the fallback have no value, and nothing to change")
)]

#[cfg_attr(not(any(target_os = "linux", target_os = "android")), path = "elsewhere.rs")]
mod memfd;

mod channel;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod check;
mod filling;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod fork;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod handle;
#[cfg_attr(not(unix), allow(dead_code))]
mod header;
pub mod safetensors_0_8;
mod sealed;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod serve;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod socket;
mod wait;

pub use channel::{Channel, Loan, Message, Pool, Ready};
pub use filling::{Builder, Filling, seal, seal_file};
#[cfg(any(target_os = "linux", target_os = "android"))]
#[doc(hidden)]
pub use fork::process;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use handle::{Opening, open_handle};
pub use sealed::SealedTensors;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub use sealed::open_handle;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use serve::Opens;
pub use wait::WaitError;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlbridge::Error;

/// Where tensors begin: what SIMD kernels and JAX expect of memory that they share.
const ALIGN: usize = 64;

/// The error for a file, or a use of it, that is not as expected.
fn refused(reason: String) -> Error {
    Error::Refused { by: "sealed tensors", reason }
}

/// The error of a call of the system.
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
fn system(call: &'static str, error: impl fmt::Display) -> Error {
    Error::Refused { by: call, reason: error.to_string() }
}

/// A lock that is held for a few instructions, or while frames are read or written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
