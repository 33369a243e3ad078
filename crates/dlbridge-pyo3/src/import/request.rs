//! Imports memory as it was asked for: shared, by the fastest path of the object's type; ready for a stream, and finds the
//! stream after whose work memory is ready; on a device, or copied.
//! Invariant: a stream is passed to a producer only for memory on a device with streams. An exchange
//! table never waits, so its memory is ordered here.

use dlbridge::protocol::call::{Delivery, Keywords};
use dlbridge::protocol::stream::{Platform, platform};
use dlbridge::{Device, Tensor, protocol};
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{Borrowed, intern};

use super::{ImportOptions, Protocol, advice, cuda, dlpack, exchange, fallback};
use crate::error::{error_of, is_refusal, unless_refused};
use crate::ffi::acquired::import_buffer;
use crate::ffi::borrow::Borrowed as BorrowedMemory;
use crate::ffi::callbacks::{exporting, nesting};
use crate::ffi::published::Published;
use crate::stream::{self, Ready, Stream, is_copied_to_host};
use crate::types::{Path, path_of, table_of};
use crate::{Error, Result, TensorObject};

/// Imports without a request for a device, a copy or a stream, by the path of the object's type. As an argument of a call
/// (`in_frame`), the memory needs no header.
#[inline(always)]
pub(super) fn import_by_path(
    object: Borrowed<'_, '_, PyAny>,
    path: Option<Path<'_, '_>>,
    in_frame: bool,
) -> Result<(BorrowedMemory, Protocol)> {
    let kept = |tensor, protocol| Ok((BorrowedMemory::unborrowed(tensor), protocol));
    match path {
        None => {}
        Some(Path::NumPy(array) | Path::DerivedNumPy(array)) => {
            if let Some(memory) = array.memory(TensorObject::keep, in_frame)? {
                return Ok((memory, Protocol::NumPy));
            }
            exporting(|| advice::refuse_without_size(object))?;
        }
        Some(Path::NumPySubclass) => exporting(|| advice::refuse_without_size(object))?,
        Some(Path::Buffer) => {
            return kept(import_buffer(object, TensorObject::keep)?, Protocol::Buffer);
        }
        Some(Path::Jax) => {
            if let Some((tensor, protocol)) = fallback::import_jax(object)? {
                return kept(tensor, protocol);
            }
        }
        Some(Path::Masked) => exporting(|| {
            advice::refuse_mask(object)?;
            advice::refuse_without_size(object)
        })?,
        Some(Path::TorchSubclass) => exporting(|| advice::refuse_without_values(object))?,
        Some(Path::Torch(torch)) => {
            if let Some(memory) = torch.memory(in_frame)? {
                return Ok((memory, Protocol::ExchangeApi));
            }
        }
        Some(Path::Own(published)) => {
            let tensor = match TensorObject::returned(object, Stream::DEFAULT)? {
                Some(tensor) => Some(tensor),
                None => exchange::import_by_table(published)?,
            };
            if let Some(tensor) = tensor {
                return kept(tensor, Protocol::ExchangeApi);
            }
        }
        Some(Path::Table(published)) => {
            if let Some(tensor) = exchange::import_by_table(published)? {
                return kept(tensor, Protocol::ExchangeApi);
            }
        }
    }
    let (tensor, protocol) = nesting(|| dlpack::import_by_dlpack(object))?;
    kept(tensor, protocol)
}

/// As [`import_by_path`], for code that keeps the tensor.
pub(super) fn import_shared(object: Borrowed<'_, '_, PyAny>) -> Result<(Tensor, Protocol)> {
    let (memory, protocol) = import_by_path(object, path_of(object)?, false)?;
    Ok((memory.into_given(), protocol))
}

/// Imports the producer's memory, ready for work that is queued on `stream` after this returns. Also returns the work
/// that `stream` waits for, if it is known.
#[cold]
pub(super) fn import_on_stream(
    object: Borrowed<'_, '_, PyAny>,
    stream: Stream,
) -> Result<(Tensor, Protocol, Option<Ready>)> {
    if let Some(tensor) = TensorObject::returned(object, stream)? {
        stream.number_on(tensor.device())?;
        return Ok((tensor, Protocol::ExchangeApi, None));
    }
    if let Some(published) = table_of(object)? {
        let (tensor, protocol) = import_shared(object)?;
        let is_ordered_here = platform(tensor.device()) != Some(Platform::Rocm);
        if protocol == Protocol::ExchangeApi && (is_ordered_here || stream == Stream::NO_SYNC) {
            let ready = order(published, tensor.device(), stream)?;
            return Ok((tensor, protocol, ready));
        }
    }
    let (tensor, protocol) = ask_on_stream(object, stream)?;
    Ok((tensor, protocol, None))
}

/// Makes `stream` wait for the work on the current stream of the framework of an exchange table, which itself does not
/// wait, and returns that work. `None` if there is nothing to wait for.
fn order(published: Published<'_, '_>, device: Device, stream: Stream) -> Result<Option<Ready>> {
    let number = stream.number_on(device)?;
    if number.is_none() || stream == Stream::NO_SYNC {
        return Ok(None);
    }
    let current = exchange::current_stream(published, device)?;
    let ready = Ready::on(current, device)?;
    if let Some(ready) = ready.as_ref().filter(|_| current.number_on(device).ok() != Some(number)) {
        ready.before(stream, device)?;
    }
    Ok(ready)
}

/// Tells the producer of the stream, if its device has streams.
fn ask_on_stream(object: Borrowed<'_, '_, PyAny>, stream: Stream) -> Result<(Tensor, Protocol)> {
    let Some(device) = device_of(object)? else { return import_made(object, stream) };
    let Some(number) = stream.number_on(device)? else { return import_shared(object) };
    match path_of(object)? {
        // JAX takes -1 for the address of a stream.
        Some(Path::Jax) if stream == Stream::NO_SYNC => return import_shared(object),
        Some(Path::TorchSubclass) => advice::refuse_without_values(object)?,
        _ => {}
    }
    let answer = dlpack::ask(object, Keywords { stream: Some(number), ..Keywords::SHARED })
        .map_err(|failure| failure.exception)?;
    dlpack::take(object, answer, stream)
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
    if let Some(found) = cuda::import(object, stream)? {
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
        Protocol::ExchangeApi => current_stream_of(object, device).map(Some),
        // A producer that was not told of a stream makes the default one wait.
        _ => Ok(Some(Stream::DEFAULT)),
    }
}

/// The current stream of an object's producer, for the object's device: some producers crash for
/// another device.
#[cold]
fn current_stream_of(object: Borrowed<'_, '_, PyAny>, device: Device) -> Result<Stream> {
    match table_of(object)? {
        Some(published) => exchange::current_stream(published, device),
        None => Ok(Stream::DEFAULT),
    }
}

/// Makes the requested tensor. `stream` is the stream after whose work `tensor` is ready.
#[cold]
pub(super) fn deliver(
    object: Borrowed<'_, '_, PyAny>,
    tensor: Tensor,
    stream: Option<Stream>,
    options: ImportOptions,
) -> Result<Tensor> {
    let (copy, found) = (options.copy, tensor.device());
    let py = object.py();
    let copied = |to| {
        let ready = stream.map_or(Ok(None), |stream| Ready::on(stream, found))?;
        stream::copy(py, &tensor, ready.as_ref(), to)
    };
    let delivered =
        match copy.delivery(found, tensor.is_copied(), options.device, is_copied_to_host) {
            Delivery::Keep => tensor,
            Delivery::CopyOnHost => copied(Device::CPU)?,
            Delivery::Call(device) => match ask_for(object, found, device, options) {
                // The producer makes no copy there.
                Err(error)
                    if device == found && is_copied_to_host(found) && error.is_refusal(py) =>
                {
                    copied(device)?
                }
                asked => asked?,
            },
        };
    copy.check(delivered.is_copied()).map_err(Error::refused)?;
    Ok(delivered)
}

/// Calls the producer for another device, or for a copy there.
fn ask_for(
    object: Borrowed<'_, '_, PyAny>,
    found: Device,
    device: Device,
    options: ImportOptions,
) -> Result<Tensor> {
    // A stream is one of the device that is asked for (array API 2024.12, `dl_device`).
    let stream = options.stream.map_or(Ok(None), |stream| stream.number_on(device))?;
    let copy = options.copy.keyword();
    let keywords = Keywords { stream, dl_device: Some(device), copy, ..Keywords::SHARED };
    let answer = dlpack::ask(object, keywords);
    let (tensor, _) =
        answer.map_err(|failure| no_copy(object.py(), device, found, failure.exception))?.take()?;
    if tensor.device() == device {
        Ok(tensor)
    } else {
        let found = tensor.device();
        Err(Error::buffer(format!("device: expected {device}, found {found} from the producer")))
    }
}

/// A `BufferError` with the producer's own exception as its cause, if that is a refusal.
fn no_copy(py: Python<'_>, device: Device, found: Device, cause: PyErr) -> PyErr {
    if !is_refusal(py, &cause) {
        return cause;
    }
    let message = if device == found {
        format!(
            "copy: expected a copy on {device}, but the producer refused to make one; copy it with its \
             own framework, as x.clone() in PyTorch"
        )
    } else {
        format!(
            "device: expected {device}, found {found}, and the producer refused to copy; copy it with a \
             framework that has this device, as x.to(\"{device}\") in PyTorch"
        )
    };
    let error: PyErr = Error::buffer(message).into();
    error.set_cause(py, Some(cause));
    error
}
