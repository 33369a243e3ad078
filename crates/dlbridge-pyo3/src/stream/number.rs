//! Streams: the order of work on a device, as the array API standard has it.
//! What waits for a stream belongs to `ready`, the numbers to `dlbridge::protocol::stream`.

use std::ffi::c_void;

use dlbridge::Device;
use dlbridge::protocol::stream;
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyInt;
use pyo3::{Borrowed, intern};

use crate::{Error, Result};

/// A stream of work on a device.
///
/// As an argument of a Python function it accepts the numbers of the array API standard, and any
/// object with `__cuda_stream__` (cuda.core, CuPy, PyTorch). Python code is trusted to name a
/// stream that exists, as it is trusted with pointers (`SAFETY.md`, T11).
///
/// | number | on CUDA | on ROCm |
/// | --- | --- | --- |
/// | `None` | the legacy default stream | the default stream |
/// | -1 | no stream: nothing waits | the same |
/// | 0 | rejected, since it is ambiguous | the default stream |
/// | 1 | the legacy default stream | rejected |
/// | 2 | the per-thread default stream | rejected |
/// | larger | the stream at this address | the same |
///
/// Other devices have no streams and accept only `None` and -1. Two streams are
/// equal if they have the same number.
///
/// ```
/// use dlbridge::{Device, DeviceKind, Tensor};
/// use dlbridge_pyo3::Stream;
///
/// assert_eq!(Stream::DEFAULT.number_on(Device::cuda(0))?, Some(1));
/// assert_eq!(Stream::DEFAULT.number_on(Device::new(DeviceKind::ROCM, 0))?, Some(0));
/// assert_eq!(Stream::DEFAULT.number_on(Device::CPU)?, None);
/// assert!(Stream::PER_THREAD.number_on(Device::CPU).is_err());
/// # Ok::<(), dlbridge_pyo3::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stream(Option<i64>);

impl Stream {
    /// The default stream of any platform; on CUDA the legacy one. It is what `None` means.
    pub const DEFAULT: Self = Self(None);
    /// The per-thread default stream (CUDA only): 2.
    pub const PER_THREAD: Self = Self(Some(2));
    /// No stream: nothing waits for anything. -1.
    pub const NO_SYNC: Self = Self(Some(stream::NO_SYNC));

    /// The stream of a `cudaStream_t`, `CUstream` or `hipStream_t`; the default one if it is null.
    ///
    /// # Safety
    ///
    /// The stream exists until every call that it is passed to has returned: an import, or
    /// [`ready_after`](crate::TensorObject::ready_after).
    #[must_use]
    pub unsafe fn from_handle(handle: *mut c_void) -> Self {
        match handle.addr() {
            0 => Self::DEFAULT,
            // An address of this process fits.
            address => Self(Some(address as i64)),
        }
    }

    /// The number of this stream in a call of `__dlpack__`; `None` for a device without streams.
    ///
    /// # Errors
    ///
    /// A `BufferError` for a stream that this device does not have.
    pub fn number_on(self, device: Device) -> Result<Option<i64>> {
        Ok(stream::number_on(self.0, device)?)
    }

    /// Whether this is what `None` means on a device.
    pub(crate) fn is_default_on(self, device: Device) -> bool {
        self.number_on(device).is_ok_and(|number| number == stream::default_on(device))
    }

    /// Whether memory on this device can wait for a stream at all.
    pub(crate) fn exist_on(device: Device) -> bool {
        stream::platform(device).is_some()
    }

    /// The stream argument of `__dlpack__`, for memory on `device`; `None` is the default stream.
    pub(crate) fn requested(
        stream: Option<Borrowed<'_, '_, PyAny>>,
        device: Device,
    ) -> Result<Self> {
        let Some(found) = stream else { return Ok(Self::DEFAULT) };
        let error = match found.extract::<Self>() {
            Ok(stream) => match stream.number_on(device) {
                Ok(_) => return Ok(stream),
                Err(error) => return Err(error),
            },
            Err(error) => PyErr::from(error),
        };
        if !error.is_instance_of::<PyException>(found.py()) {
            return Err(error.into());
        }
        Err(stream::not_a_stream(&found.repr()?.to_string(), device).into())
    }
}

impl<'py> FromPyObject<'_, 'py> for Stream {
    type Error = Error;

    /// A number from -1 on, or an object with `__cuda_stream__`.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> Result<Self> {
        match object.extract::<i64>() {
            Ok(number) if number >= -1 => return Ok(Self(Some(number))),
            _ => {}
        }
        if let Some(protocol) = object.getattr_opt(intern!(object.py(), "__cuda_stream__"))? {
            return of_protocol(&protocol);
        }
        let found = object.repr()?;
        let expected = "a number from -1 on, or an object with __cuda_stream__";
        let message = format!("stream: expected {expected}, found {found}");
        if object.is_instance_of::<PyInt>() {
            return Err(Error::buffer(message));
        }
        Err(PyTypeError::new_err(message).into())
    }
}

/// The stream of an object's `__cuda_stream__`: version 0 of the protocol is the pair of 0
/// and the handle. The first cuda.core had the pair as a property.
fn of_protocol(protocol: &Bound<'_, PyAny>) -> Result<Stream> {
    let pair = if protocol.is_callable() { protocol.call0()? } else { protocol.clone() };
    let Ok((0, handle)) = pair.extract::<(i64, usize)>() else {
        let found = pair.repr()?;
        let message = format!("__cuda_stream__: expected (0, handle), found {found}");
        return Err(Error::buffer(message));
    };
    // SAFETY: the object's own stream (SAFETY.md, T11).
    Ok(unsafe { Stream::from_handle(std::ptr::without_provenance_mut(handle)) })
}
