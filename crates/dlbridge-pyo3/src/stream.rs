//! Streams of devices: as arguments of Python functions, and the work after which a tensor's memory is ready.
//! The driver's functions belong to `ffi::driver`, the numbers to `dlbridge::protocol::stream`.
//! Invariant: only streams wait for device work; the host waits only before it reads.

use dlbridge::protocol::stream::{Platform, not_a_stream, platform};
use dlbridge::{Device, DeviceKind, Tensor};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use pyo3::{Borrowed, intern};

pub use crate::ffi::stream::Stream;

use crate::error::{error_of, is_refusal, unless_refused};
use crate::ffi::borrow::copied;
#[cfg(feature = "cudarc-0_19")]
use crate::ffi::capture;
use crate::ffi::driver::{Event, has_driver, has_no_work, memory};
use crate::interpreter::{Attributes, through_pyo3};
use crate::{Error, Result};

impl Stream {
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
        if !is_refusal(found.py(), &error) {
            return Err(error.into());
        }
        Err(Error::refused(not_a_stream(&found.repr()?.to_string(), device)))
    }
}

impl<'py> FromPyObject<'_, 'py> for Stream {
    type Error = Error;

    /// A number from -1 on, or an object with `__cuda_stream__`.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> Result<Self> {
        through_pyo3(|| of_object(object))
    }
}

fn of_object(object: Borrowed<'_, '_, PyAny>) -> Result<Stream> {
    let number = unless_refused(object.py(), object.extract::<i64>())?;
    if let Some(stream) = number.and_then(Stream::from_number) {
        return Ok(stream);
    }
    if let Some(protocol) = object.attribute_opt(intern!(object.py(), "__cuda_stream__"))? {
        return of_protocol(&protocol);
    }
    let found = object.repr()?;
    let expected = "a number from -1 on, or an object with __cuda_stream__";
    let message = format!("stream: expected {expected}, found {found}");
    if object.is_instance_of::<PyInt>() {
        return Err(Error::buffer(message));
    }
    Err(error_of::<PyTypeError>(message).into())
}

/// The stream of an object's `__cuda_stream__`: version 0 of the protocol is the pair of 0
/// and the handle. The first cuda.core had the pair as a property.
fn of_protocol(protocol: &Bound<'_, PyAny>) -> Result<Stream> {
    let pair = if protocol.is_callable() { protocol.call0()? } else { protocol.clone() };
    let Some((0, handle)) = unless_refused(pair.py(), pair.extract::<(i64, usize)>())? else {
        let found = pair.repr()?;
        let message = format!("__cuda_stream__: expected (0, handle), found {found}");
        return Err(Error::buffer(message));
    };
    Ok(Stream::of_protocol(handle))
}

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
        #[cfg(feature = "cudarc-0_19")]
        if tensor.stream_handle().is_some() {
            capture::find_pytorch(tensor.device());
        }
        Some(Self::Stream(Stream::of_tensor(tensor)))
    }

    /// After the work that is queued on `stream` now; `None` if there is no work to wait for, or `stream` captures
    /// it in a graph.
    pub(crate) fn on(stream: Stream, device: Device) -> Result<Option<Self>> {
        let number = stream.number_on(device)?;
        match (platform(device), number) {
            (None, _) | (_, None | Some(-1)) => Ok(None),
            (Some(Platform::Cuda), Some(1)) | (Some(Platform::Rocm), Some(0)) => {
                Ok(Some(Self::Stream(Stream::DEFAULT)))
            }
            (Some(platform), Some(number)) => {
                Ok(recorded(platform, number, device)?.map(Self::Event))
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
            Self::Event(event) => order(event, number, device),
            Self::Stream(own) => match own.number_on(device)? {
                Some(own) if own != number => match recorded(platform, own, device)? {
                    Some(event) => order(&event, number, device),
                    None => Ok(()),
                },
                _ => Ok(()),
            },
        }
    }

    /// The host waits. Without a driver there is no work to wait for.
    pub(crate) fn before_host(&self, device: Device) -> Result<()> {
        match (self, platform(device)) {
            (Self::Event(event), _) => event.before_host(),
            (Self::Stream(_), Some(Platform::Cuda)) if has_no_work() => Ok(()),
            (Self::Stream(stream), Some(platform)) => match stream.number_on(device)? {
                Some(number) => match recorded(platform, number, device)? {
                    Some(event) => event.before_host(),
                    None => Ok(()),
                },
                None => Ok(()),
            },
            (Self::Stream(_), None) => Ok(()),
        }
    }
}

/// Makes the stream of this number wait for an event. If it captures a graph of PyTorch, slices that are dropped are told.
fn order(event: &Event, number: i64, device: Device) -> Result<()> {
    event.before(number, device, |_stream| {
        #[cfg(feature = "cudarc-0_19")]
        capture::remember(_stream, device);
    })
}

/// An event behind the work on the stream of this number; `None` for a stream that captures a graph.
fn recorded(platform: Platform, number: i64, device: Device) -> Result<Option<Event>> {
    if platform == Platform::Cuda {
        return Event::record(number, device);
    }
    Err(Error::buffer(format!(
        "stream: expected work on CUDA, whose streams alone are ordered here, found work on {device}; synchronize its \
         stream first"
    )))
}

/// Makes a stream wait until memory is ready: the default one for exports without a stream argument.
#[inline]
pub(crate) fn settle(ready: Option<&Ready>, stream: Stream, device: Device) -> Result<()> {
    ready.map_or(Ok(()), |ready| ready.before(stream, device))
}

/// Waits until the host may read memory.
#[inline]
pub(crate) fn settle_host(py: Python<'_>, ready: Option<&Ready>, device: Device) -> Result<()> {
    ready.map_or(Ok(()), |ready| py.detach(|| ready.before_host(device)))
}

/// Whether [`copy`] copies memory of a device to the host.
pub(crate) fn is_copied_to_host(device: Device) -> bool {
    device.is_host_accessible() || (device.kind == DeviceKind::CUDA && has_driver())
}

/// A contiguous and exclusive copy in host memory, or on the CUDA device of the tensor, made once the memory is ready.
#[cold]
pub(crate) fn copy(
    py: Python<'_>,
    tensor: &Tensor,
    ready: Option<&Ready>,
    to: Device,
) -> Result<Tensor> {
    let device = tensor.device();
    if device.is_host_accessible() {
        settle_host(py, ready, device)?;
    } else if is_copied_to_host(device) {
        if let Some(ready) = ready {
            ready.before(memory::STREAM, device)?;
        }
        let copy = if to == device { memory::on_device } else { memory::to_host };
        return py.detach(|| copy(tensor));
    }
    copied(tensor)
}
