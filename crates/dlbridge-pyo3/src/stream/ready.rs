//! The work after which a tensor's memory is ready, and the waiting for it.
//! The driver's functions belong to `ffi::driver`, the numbers of streams to `number`.
//! Invariant: only streams wait for device work; the host waits only before it reads.

use dlbridge::protocol::stream::{Platform, platform};
use dlbridge::{Device, Tensor};
use pyo3::Python;

use super::number::Stream;
use crate::ffi::driver::{Context, Driver, EventHandle, StreamHandle};
use crate::{Error, Result};

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
        let own = tensor.stream_handle();
        // SAFETY: it lives as long as the tensor, which every waiter keeps (F7).
        Some(Self::Stream(own.map_or(Stream::DEFAULT, |own| unsafe { Stream::from_handle(own) })))
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
            (Self::Stream(_), Some(Platform::Cuda)) if Driver::get().is_err() => Ok(()),
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
    ready.map_or(Ok(()), |ready| py.detach(|| ready.before_host(device)))
}

/// A handle as the driver takes it: the numbers 1 and 2 are its own for the default streams.
fn handle(number: i64) -> StreamHandle {
    std::ptr::with_exposed_provenance_mut(number as usize)
}

/// The context of a stream; that of a default stream is the device's primary one.
fn context(driver: &Driver, number: i64, device: Device) -> Result<Context> {
    match number {
        1 | 2 => driver.primary_context(device),
        _ => driver.context_of(handle(number)),
    }
}

/// An event of the driver, and the context that it was made in.
#[derive(Debug)]
pub struct Event {
    event: EventHandle,
    context: Context,
}

// SAFETY: the driver's functions may be called with an event on any thread (F7, R9).
unsafe impl Send for Event {}
// SAFETY: the same.
unsafe impl Sync for Event {}

impl Event {
    /// Records an event on the stream of this number.
    fn record(platform: Platform, number: i64, device: Device) -> Result<Self> {
        if platform != Platform::Cuda {
            let message = format!(
                "stream: expected work on CUDA, whose streams alone are ordered here, \
                 found work on {device}; synchronize its stream first"
            );
            return Err(Error::buffer(message));
        }
        let driver = Driver::get()?;
        let context = context(driver, number, device)?;
        let event = driver.within(context, || driver.record(handle(number)))?;
        Ok(Self { event, context })
    }

    fn before(&self, number: i64, device: Device) -> Result<()> {
        let driver = Driver::get()?;
        let context = context(driver, number, device)?;
        driver.within(context, || driver.wait(handle(number), self.event))
    }

    fn before_host(&self) -> Result<()> {
        Driver::get()?.wait_on_host(self.event)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Ok(driver) = Driver::get() else { return };
        // An error here cannot be answered for; at exit, the driver may have gone first.
        let _ = driver.within(self.context, || {
            driver.destroy(self.event);
            Ok(())
        });
    }
}
