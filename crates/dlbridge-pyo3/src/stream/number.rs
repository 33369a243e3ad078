//! Streams as arguments of Python functions.
//! What waits for a stream belongs to `ready`, the numbers to `dlbridge::protocol::stream`.

use dlbridge::Device;
use dlbridge::protocol::stream;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use pyo3::{Borrowed, intern};

use crate::error::error_of;
use crate::error::{is_refusal, unless_refused};
use crate::ffi::driver::Stream;
use crate::interpreter::through_pyo3;
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
        Err(stream::not_a_stream(&found.repr()?.to_string(), device).into())
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
    if let Some(protocol) = object.getattr_opt(intern!(object.py(), "__cuda_stream__"))? {
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
