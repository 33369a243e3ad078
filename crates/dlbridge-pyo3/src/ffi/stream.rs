//! Streams of devices, by their numbers.
//! What waits for a stream belongs to `stream`, the driver that orders one after another to `driver`.

use std::ffi::c_void;
use std::ptr;

use dlbridge::protocol::stream;
use dlbridge::{Device, Tensor};

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

    /// The stream of this number; `None` for a number that no stream has.
    pub(crate) fn from_number(number: i64) -> Option<Self> {
        (number >= stream::NO_SYNC).then_some(Self(Some(number)))
    }

    /// The stream of an object's `__cuda_stream__`.
    pub(crate) fn of_protocol(handle: usize) -> Self {
        // SAFETY: the object's own stream (SAFETY.md, T11).
        unsafe { Self::from_handle(ptr::without_provenance_mut(handle)) }
    }

    /// A tensor's own stream, if it reports one (a CUDA slice does), otherwise the default one. Every
    /// waiter keeps the tensor, with which the stream lives (F7).
    pub(crate) fn of_tensor(tensor: &Tensor) -> Self {
        let Some(own) = tensor.stream_handle() else { return Self::DEFAULT };
        // SAFETY: it lives as long as the tensor (F7).
        unsafe { Self::from_handle(own) }
    }

    /// The number of this stream in a call of `__dlpack__`; `None` for a device without streams.
    ///
    /// # Errors
    ///
    /// A `BufferError` for a stream that this device does not have.
    pub fn number_on(self, device: Device) -> Result<Option<i64>> {
        stream::number_on(self.0, device).map_err(Error::refused)
    }

    /// Whether this is what `None` means on a device.
    pub(crate) fn is_default_on(self, device: Device) -> bool {
        self.number_on(device).is_ok_and(|number| number == stream::default_on(device))
    }

    /// Whether memory on this device can wait for a stream at all.
    pub(crate) fn exist_on(device: Device) -> bool {
        stream::platform(device).is_some()
    }
}
