//! Importing so that a stream may use the memory, and asking on which one it is made.
//! What is done without a stream belongs to `import`.
//! Invariant: a producer hears of a stream only for memory on a device that has them, and the
//! exchange API is not used for memory that has to be waited for: it never waits.

use dlbridge::sys::{DLDeviceType, DLPackExchangeAPI};
use dlbridge::{Device, DeviceKind, Tensor};
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{Borrowed, intern};

use super::{Ready, Stream};
use crate::ask::{knows_no_keyword, max_version};
use crate::import::import_shared;
use crate::protocol::Protocol;
use crate::{Error, Result, capsule, exchange, fallback};

/// Takes the producer's memory, so that `stream` may use it when this returns.
#[cold]
pub(crate) fn import(
    object: Borrowed<'_, '_, PyAny>,
    stream: Stream,
    protocol: &mut Protocol,
) -> Result<Tensor> {
    let Some(device) = device_of(object)? else { return import_made(object, stream, protocol) };
    let Some(number) = stream.number_on(device)? else { return import_shared(object, protocol) };
    // The exchange API gives memory as it is: right for those who do not want to wait.
    if stream == Stream::NO_SYNC && exchange::table_of(object).is_some() {
        return import_shared(object, protocol);
    }
    let py = object.py();
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "stream"), number)?;
    keywords.set_item(intern!(py, "max_version"), max_version(py)?)?;
    let method = intern!(py, "__dlpack__");
    let (answer, is_old) = match object.call_method(method, (), Some(&keywords)) {
        Ok(answer) => (answer, false),
        Err(error) if knows_no_keyword(py, &error) => {
            keywords.del_item(intern!(py, "max_version"))?;
            (object.call_method(method, (), Some(&keywords))?, true)
        }
        Err(error) => return Err(error.into()),
    };
    let tensor = capsule::take(answer.as_borrowed())?;
    *protocol = match (is_old, tensor.producer().is_some_and(|raw| raw.version.is_some())) {
        (true, _) => Protocol::LegacyNoKeyword,
        (false, true) => Protocol::Versioned,
        (false, false) => Protocol::Legacy,
    };
    Ok(tensor)
}

/// What `__dlpack_device__` says; `None` for an object without. Some say None for device 0.
fn device_of(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Device>> {
    let py = object.py();
    let answer = match object.call_method0(intern!(py, "__dlpack_device__")) {
        Ok(answer) => answer,
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let pair = answer.cast::<PyTuple>().ok().and_then(|pair| pair.extract().ok());
    let Some((kind, id)): Option<(i32, Option<i32>)> = pair else {
        let message = format!("__dlpack_device__: found {}, wanted two numbers", answer.repr()?);
        return Err(Error::Python(PyTypeError::new_err(message)));
    };
    Ok(Some(Device::new(DeviceKind(kind), id.unwrap_or(0))))
}

/// Without `__dlpack_device__`: a capsule, which was made before anybody spoke of a stream, or
/// memory that another protocol describes, and orders.
fn import_made(
    object: Borrowed<'_, '_, PyAny>,
    stream: Stream,
    protocol: &mut Protocol,
) -> Result<Tensor> {
    if let Some((tensor, way)) = fallback::import_cuda(object, stream)? {
        *protocol = way;
        return Ok(tensor);
    }
    let tensor = import_shared(object, protocol)?;
    let device = tensor.device();
    // A capsule and an old producer have done what `None` means.
    let is_done = stream == Stream::NO_SYNC || stream.is_default_on(device);
    if stream.number_on(device)?.is_none() || is_done {
        return Ok(tensor);
    }
    Err(Error::buffer(format!(
        "stream: found memory on {device} from a {protocol} that was not told of one, \
         wanted an object with __dlpack_device__"
    )))
}

/// The stream after whose work a tensor is ready that was taken from an object just now, for the
/// stream that was `asked` for; `None` if there is nothing to be waited for, or it is not wanted.
#[inline]
pub(crate) fn stream_after(
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

/// Makes the stream on which a table's framework works wait for a tensor that tells its own: what
/// goes through the table is never waited for.
#[inline]
pub(crate) fn before_table(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
    tensor: &Tensor,
) -> Result<()> {
    let Some(ready) = Ready::of(tensor) else { return Ok(()) };
    let theirs = current_of(object, table, tensor.device())?;
    ready.before(theirs, tensor.device())
}

/// The stream on which the producer of an object works, on the device that the object is on: some
/// crash when they are asked about another.
#[cold]
fn current(object: Borrowed<'_, '_, PyAny>, device: Device) -> Result<Stream> {
    match exchange::table_of(object) {
        Some(table) => current_of(object, table, device),
        None => Ok(Stream::DEFAULT),
    }
}

/// The current stream of the table of an object's type.
#[cold]
fn current_of(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
    device: Device,
) -> Result<Stream> {
    let Some(current_work_stream) = table.current_work_stream else { return Ok(Stream::DEFAULT) };
    // Some leave it as it is where they mean the default stream.
    let mut handle = std::ptr::null_mut();
    let kind = DLDeviceType(device.kind.0);
    // SAFETY: a callback of a type's own table, a place for the answer, and attached (F1, F5).
    let status = unsafe { current_work_stream(kind, device.id, &raw mut handle) };
    if status != 0 {
        return Err(exchange::failure(object));
    }
    // SAFETY: the producer's own current stream (SAFETY.md, T11).
    Ok(unsafe { Stream::from_handle(handle) })
}
