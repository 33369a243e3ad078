//! What a consumer asks of `__dlpack__`, and the answer.
//! Capsules belong to `capsule`, the Python class to `object`.
//! Invariant: a refusal is a `BufferError`.

use dlbridge::{Device, DeviceKind, Tensor};
use pyo3::prelude::*;

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
    /// A capsule over the tensor's memory, or over a copy.
    pub(crate) fn answer<'py>(&self, py: Python<'py>, tensor: Tensor) -> Result<Bound<'py, PyAny>> {
        self.check_stream(tensor.device())?;
        let relocated = self.check_device(tensor.device())?;
        let exported = match (self.copy, relocated) {
            (Some(true), _) | (_, true) => tensor.to_compact()?,
            _ => tensor,
        };
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

    /// Host memory has no streams: only `None` and -1 ("do not synchronise") mean something.
    fn check_stream(&self, device: Device) -> Result<()> {
        let Some(stream) = &self.stream else { return Ok(()) };
        if stream.extract::<i64>().is_ok_and(|stream| stream == -1) {
            return Ok(());
        }
        let found = stream.repr()?;
        Err(Error::buffer(format!("stream: found {found}, wanted None or -1 for {device}")))
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
