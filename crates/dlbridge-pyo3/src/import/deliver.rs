//! Moves a producer's memory to the requested device, or copies it.

use dlbridge::protocol::call::{Delivery, Keywords};
use dlbridge::{Device, Tensor};
use pyo3::Borrowed;
use pyo3::prelude::*;

use super::dlpack;
use super::options::ImportOptions;
use crate::error::is_refusal;
use crate::ffi::borrow::copied;
use crate::stream::{Ready, Stream};
use crate::{Error, Result};

/// Makes the requested tensor. `stream` is the stream after whose work `shared` is ready.
#[cold]
pub(super) fn deliver(
    object: Borrowed<'_, '_, PyAny>,
    tensor: Tensor,
    stream: Option<Stream>,
    options: ImportOptions,
) -> Result<Tensor> {
    let (copy, found) = (options.copy, tensor.device());
    let delivered = match copy.delivery(found, tensor.is_copied(), options.device) {
        Delivery::Keep => tensor,
        Delivery::CopyOnHost => host_copy(object.py(), &tensor, stream)?,
        Delivery::Call(device) => ask_for(object, found, device, options)?,
    };
    copy.check(delivered.is_copied())?;
    Ok(delivered)
}

/// Copies to ordinary host memory, after the work of a stream is done.
fn host_copy(py: Python<'_>, tensor: &Tensor, stream: Option<Stream>) -> Result<Tensor> {
    let device = tensor.device();
    if let Some(ready) = stream.map_or(Ok(None), |stream| Ready::on(stream, device))? {
        py.detach(|| ready.before_host(device))?;
    }
    copied(tensor)
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
