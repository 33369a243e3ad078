//! What a consumer asks of `__dlpack__`, and the answer.
//! Capsules belong to `capsule`, the Python class to `object`.
//! Invariant: a refusal is a `BufferError`.

use dlbridge::{Device, DeviceKind, Tensor};
use pyo3::prelude::*;

use crate::stream::{Ready, Stream};
use crate::{Error, Result, capsule};

/// The keywords of `__dlpack__`, array API standard 2024.12.
#[derive(Default)]
pub(crate) struct Request<'py> {
    pub(crate) stream: Option<Bound<'py, PyAny>>,
    pub(crate) max_version: Option<(u32, u32)>,
    pub(crate) dl_device: Option<(i32, Option<i32>)>,
    pub(crate) copy: Option<bool>,
}

impl Request<'_> {
    /// A capsule over the tensor's memory, or over a copy, which the stream asked for may use once
    /// the memory is `ready`.
    pub(crate) fn answer_when<'py>(
        &self,
        py: Python<'py>,
        tensor: Tensor,
        ready: Option<&Ready>,
    ) -> Result<Bound<'py, PyAny>> {
        let device = tensor.device();
        let relocated = self.check_device(device)?;
        // A stream is one of the device that is asked for (array API 2024.12, `dl_device`).
        let target = if relocated { Device::CPU } else { device };
        let stream = Stream::requested(self.stream.as_ref(), target)?;
        let is_copy = relocated || self.copy == Some(true);
        match ready {
            Some(ready) if !is_copy => ready.before(stream, device)?,
            Some(ready) if device.is_host_accessible() => {
                py.detach(|| ready.before_host(device))?;
            }
            _ => {}
        }
        let exported = if is_copy { tensor.to_compact()? } else { tensor };
        if self.wants_versioned() {
            capsule::versioned(py, exported)
        } else {
            capsule::legacy(py, exported)
        }
    }

    /// A consumer that names no version, or one below 1, reads the old ABI only.
    fn wants_versioned(&self) -> bool {
        self.max_version.is_some_and(|(major, _)| major >= 1)
    }

    /// Whether the memory must be copied to reach the device asked for.
    fn check_device(&self, device: Device) -> Result<bool> {
        let Some((kind, id)) = self.dl_device else { return Ok(false) };
        let wanted = Device::new(DeviceKind(kind), id.unwrap_or(0));
        if wanted == device {
            return Ok(false);
        }
        let to_host = wanted == Device::CPU && device.is_host_accessible();
        if to_host && self.copy != Some(false) {
            return Ok(true);
        }
        Err(Error::buffer(format!("dl_device: found {device}, wanted {wanted}")))
    }
}
