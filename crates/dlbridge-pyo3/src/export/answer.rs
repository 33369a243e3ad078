//! The capsule that answers a call of `__dlpack__`.
//! What a request permits belongs to `dlbridge::protocol::export`.

use dlbridge::protocol::export::Request;
use dlbridge::{Tensor, protocol};
use pyo3::prelude::*;

use super::capsule;
use crate::Result;
use crate::stream::{Ready, Stream};

/// The arguments of `__dlpack__`, array API standard 2024.12, as PyO3 gives them.
#[derive(Default)]
pub(crate) struct Arguments<'py> {
    pub(crate) stream: Option<Bound<'py, PyAny>>,
    pub(crate) max_version: Option<(u32, u32)>,
    pub(crate) dl_device: Option<(i32, Option<i32>)>,
    pub(crate) copy: Option<bool>,
}

impl Arguments<'_> {
    pub(crate) fn request(&self) -> Request {
        let dl_device = self.dl_device.map(|(kind, id)| protocol::device(kind, id));
        Request { max_version: self.max_version, dl_device, copy: self.copy }
    }
}

/// Makes a capsule over a tensor's memory, or over a copy. The requested stream waits until the
/// memory is `ready`.
pub(crate) fn answer<'py>(
    py: Python<'py>,
    request: Request,
    stream: Option<&Bound<'py, PyAny>>,
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
    let exported = if answer.copy { tensor.to_contiguous()? } else { tensor };
    if answer.versioned { capsule::versioned(py, exported) } else { capsule::legacy(py, exported) }
}
