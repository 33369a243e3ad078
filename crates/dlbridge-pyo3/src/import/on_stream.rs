//! Imports for a stream, and finds the stream after whose work memory is ready.
//! Importing without a stream belongs to `shared`.
//! Invariant: a stream is passed to a producer only for memory on a device with streams. The
//! exchange API is not used for memory that has to be waited for, since it never waits.

use dlbridge::protocol::call::Keywords;
use dlbridge::{Device, Tensor, protocol};
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{Borrowed, intern};

use super::options::Protocol;
use super::shared::import_shared;
use super::{dlpack, exchange, fallback};
use crate::error::error_of;
use crate::error::unless_refused;
use crate::stream::Stream;
use crate::types::table_of;
use crate::{Error, Result};

/// Imports the producer's memory, ready for work that is queued on `stream` after this returns.
#[cold]
pub(super) fn import_on_stream(
    object: Borrowed<'_, '_, PyAny>,
    stream: Stream,
) -> Result<(Tensor, Protocol)> {
    let Some(device) = device_of(object)? else { return import_made(object, stream) };
    let Some(number) = stream.number_on(device)? else { return import_shared(object) };
    // The exchange API gives memory as it is: right for consumers that do not want to wait.
    if stream == Stream::NO_SYNC && table_of(object)?.is_some() {
        return import_shared(object);
    }
    dlpack::ask(object, Keywords { stream: Some(number), ..Keywords::SHARED })?.take()
}

/// The result of `__dlpack_device__`; `None` for an object without it. Some producers return None
/// for device 0.
fn device_of(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Device>> {
    let py = object.py();
    let answer = match object.call_method0(intern!(py, "__dlpack_device__")) {
        Ok(answer) => answer,
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let pair = answer.cast::<PyTuple>().map_err(PyErr::from).and_then(|pair| pair.extract());
    let Some((kind, id)) = unless_refused(py, pair)? else {
        let message = format!("__dlpack_device__: expected two numbers, found {}", answer.repr()?);
        return Err(Error::from(error_of::<PyTypeError>(message)));
    };
    Ok(Some(protocol::device(kind, id)))
}

/// Imports an object without `__dlpack_device__`: a capsule, which was made before the stream was
/// known, or an object with another protocol, which orders the work itself.
fn import_made(object: Borrowed<'_, '_, PyAny>, stream: Stream) -> Result<(Tensor, Protocol)> {
    if let Some(found) = fallback::import_cuda(object, stream)? {
        return Ok(found);
    }
    let (tensor, protocol) = import_shared(object)?;
    let device = tensor.device();
    // A capsule and an old producer have done what `None` means.
    let is_done = stream == Stream::NO_SYNC || stream.is_default_on(device);
    if stream.number_on(device)?.is_none() || is_done {
        return Ok((tensor, protocol));
    }
    Err(Error::buffer(format!(
        "stream: expected an object with __dlpack_device__, which can be told of a stream, \
         found memory on {device} from a {protocol}"
    )))
}

/// The stream after whose work a tensor that was just imported is ready, for the requested stream
/// `asked`. `None` if there is no work to wait for, or the caller requested no order.
#[inline]
pub(super) fn stream_after(
    object: Borrowed<'_, '_, PyAny>,
    tensor: &Tensor,
    protocol: Protocol,
    asked: Option<Stream>,
) -> Result<Option<Stream>> {
    let device = tensor.device();
    if !Stream::exist_on(device) || asked == Some(Stream::NO_SYNC) {
        return Ok(None);
    }
    match protocol {
        _ if asked.is_some() => Ok(asked),
        Protocol::ExchangeApi => current(object, device).map(Some),
        // A producer that was not told of a stream makes the default one wait.
        _ => Ok(Some(Stream::DEFAULT)),
    }
}

/// The current stream of an object's producer, for the object's device: some producers crash for
/// another device.
#[cold]
fn current(object: Borrowed<'_, '_, PyAny>, device: Device) -> Result<Stream> {
    match table_of(object)? {
        Some(published) => exchange::current_stream(published, device),
        None => Ok(Stream::DEFAULT),
    }
}
