//! When a tensor's memory is ready, and making others wait until it is.
//! The driver's functions belong to `driver`, what the numbers of streams mean to `Stream`.
//! Invariant: only streams wait for device work; the host waits only where the host reads.

use dlbridge::protocol::stream::{Platform, platform};
use dlbridge::{Device, Tensor};

use super::driver::{Context, Driver, EventHandle, StreamHandle};
use super::number::Stream;
use crate::{Error, Result};

/// The work after which a tensor's memory is ready.
#[derive(Debug)]
pub(crate) enum Ready {
    /// Whatever a stream has been given when somebody is to wait: it is there as long as the tensor,
    /// so nothing needs to be done before. The default stream, or that of the memory's owner.
    Stream(Stream),
    /// What a stream had been given when the event was recorded. The stream may be gone since.
    Event(Event),
}

impl Ready {
    /// After the work on a tensor's own stream, where it tells one (a CUDA slice does), else on the
    /// default one, as DLPack has it where nobody says more. `None` for memory without streams.
    #[inline]
    pub(crate) fn for_tensor(tensor: &Tensor) -> Option<Self> {
        platform(tensor.device())?;
        let own = tensor.stream_handle();
        // SAFETY: it lives as long as the tensor, which whoever waits for it keeps, too (F7).
        Some(Self::Stream(own.map_or(Stream::DEFAULT, |own| unsafe { Stream::from_handle(own) })))
    }

    /// After what has been queued on `stream` so far; `None` if nothing is to be waited for.
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

    /// Waits here. Without a driver there is no work to be waited for.
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

/// Makes the default stream wait for the work on a tensor that tells its own stream. For exports
/// through which no consumer names a stream.
#[inline]
pub(crate) fn settle(tensor: &Tensor) -> Result<()> {
    match Ready::for_tensor(tensor) {
        Some(ready) => ready.before(Stream::DEFAULT, tensor.device()),
        None => Ok(()),
    }
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
pub(crate) struct Event {
    event: EventHandle,
    context: Context,
}

// SAFETY: the driver's functions may be called with an event on any thread (F7, R9).
unsafe impl Send for Event {}
// SAFETY: the same.
unsafe impl Sync for Event {}

impl Event {
    /// Records what the stream of this number has been given so far.
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
