//! The capsule that answers a call of `__dlpack__`.
//! What a request permits belongs to `dlbridge::protocol::call`.

use dlbridge::Tensor;
use dlbridge::protocol::call::Request;
use pyo3::Borrowed;
use pyo3::prelude::*;

use crate::Result;
use crate::ffi::borrow::copied;
use crate::ffi::capsule;
use crate::stream::{Ready, Stream};

/// Makes a capsule over a tensor's memory, or over a copy. The requested stream waits until the
/// memory is `ready`.
pub(crate) fn answer<'py>(
    py: Python<'py>,
    request: Request,
    stream: Option<Borrowed<'_, 'py, PyAny>>,
    tensor: Tensor,
    ready: Option<&Ready>,
) -> Result<Bound<'py, PyAny>> {
    let device = tensor.device();
    let answer = request.answer(device)?;
    let stream = Stream::requested(stream, answer.device)?;
    match ready {
        Some(ready) if !answer.copy => ready.before(stream, device)?,
        Some(ready) if device.is_host_accessible() => {
            py.detach(|| ready.before_host(device))?;
        }
        _ => {}
    }
    let exported = if answer.copy { copied(&tensor)? } else { tensor };
    if answer.versioned { capsule::versioned(py, exported) } else { capsule::legacy(py, exported) }
}
