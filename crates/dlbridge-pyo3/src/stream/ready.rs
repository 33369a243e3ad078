//! The work after which a tensor's memory is ready, and the waiting for it.
//! The driver's functions belong to `ffi::driver`, the numbers of streams to `number`.
//! Invariant: only streams wait for device work; the host waits only before it reads.

use dlbridge::protocol::stream::{Platform, platform};
use dlbridge::{Device, Tensor};
use pyo3::Python;

use crate::Result;
use crate::ffi::driver::{Event, Stream, has_driver};

/// The work after which a tensor's memory is ready.
#[derive(Debug)]
pub enum Ready {
    /// The work that is queued on a stream when a consumer waits. The stream lives as long as the
    /// tensor, so no event is needed before. It is the default stream, or that of the memory's
    /// owner.
    Stream(Stream),
    /// The work that was queued on a stream when the event was recorded. The stream may no longer
    /// exist.
    Event(Event),
}

impl Ready {
    /// After the work on a tensor's own stream, if it reports one (a CUDA slice does), otherwise on
    /// the default stream, which is DLPack's default. `None` for memory without streams.
    #[inline]
    pub(crate) fn for_tensor(tensor: &Tensor) -> Option<Self> {
        platform(tensor.device())?;
        Some(Self::Stream(Stream::of_tensor(tensor)))
    }

    /// After the work that is queued on `stream` now; `None` if there is no work to wait for.
    pub(crate) fn on(stream: Stream, device: Device) -> Result<Option<Self>> {
        let number = stream.number_on(device)?;
        match (platform(device), number) {
            (None, _) | (_, None | Some(-1)) => Ok(None),
            (Some(Platform::Cuda), Some(1)) | (Some(Platform::Rocm), Some(0)) => {
                Ok(Some(Self::Stream(Stream::DEFAULT)))
            }
            (Some(platform), Some(number)) => {
                Event::record(platform, number, device).map(|event| Some(Self::Event(event)))
            }
        }
    }

    /// Makes work that is queued on `stream` from now on wait.
    pub(crate) fn before(&self, stream: Stream, device: Device) -> Result<()> {
        let (Some(platform), Some(number)) = (platform(device), stream.number_on(device)?) else {
            return Ok(());
        };
        match self {
            _ if number == -1 => Ok(()),
            Self::Event(event) => event.before(number, device),
            Self::Stream(own) => match own.number_on(device)? {
                Some(own) if own != number => {
                    Event::record(platform, own, device)?.before(number, device)
                }
                _ => Ok(()),
            },
        }
    }

    /// The host waits. Without a driver there is no work to wait for.
    pub(crate) fn before_host(&self, device: Device) -> Result<()> {
        match (self, platform(device)) {
            (Self::Event(event), _) => event.before_host(),
            (Self::Stream(_), Some(Platform::Cuda)) if !has_driver() => Ok(()),
            (Self::Stream(stream), Some(platform)) => match stream.number_on(device)? {
                Some(number) => Event::record(platform, number, device)?.before_host(),
                None => Ok(()),
            },
            (Self::Stream(_), None) => Ok(()),
        }
    }
}

/// Makes the default stream wait until memory is ready. For exports without a stream argument.
#[inline]
pub(crate) fn settle(ready: Option<&Ready>, device: Device) -> Result<()> {
    ready.map_or(Ok(()), |ready| ready.before(Stream::DEFAULT, device))
}

/// Waits until the host may read memory.
#[inline]
pub(crate) fn settle_host(py: Python<'_>, ready: Option<&Ready>, device: Device) -> Result<()> {
    match ready {
        None => Ok(()),
        Some(ready) => wait_on_host(py, ready, device),
    }
}

#[cold]
fn wait_on_host(py: Python<'_>, ready: &Ready, device: Device) -> Result<()> {
    py.detach(|| ready.before_host(device))
}
