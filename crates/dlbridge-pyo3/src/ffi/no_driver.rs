//! Without the feature `cuda`: no work is ordered, and no device memory is copied.
//! Invariant: memory that may have work before it is rejected, with the feature that waits for it.

use std::ffi::c_void;

use dlbridge::Device;

use crate::{Error, Result};

/// An event of the driver: none is ever recorded.
#[derive(Debug)]
pub enum Event {}

impl Event {
    pub(crate) fn record(number: i64, device: Device) -> Result<Option<Self>> {
        Err(needs_feature(&format!("work on stream {number} of {device}")))
    }

    pub(crate) fn before(&self, _: i64, _: Device, _: impl FnOnce(*mut c_void)) -> Result<()> {
        match *self {}
    }

    pub(crate) fn before_host(&self) -> Result<()> {
        match *self {}
    }
}

/// Whether there is a driver that this extension calls.
pub(crate) fn has_driver() -> bool {
    false
}

/// Whether no work can be queued on a CUDA device. Not known here: other libraries may have a driver.
pub(crate) fn has_no_work() -> bool {
    false
}

#[cold]
fn needs_feature(found: &str) -> Error {
    Error::buffer(format!(
        "stream: expected memory that is ready, found {found}; an extension waits for it by the feature `cuda` of \
         dlbridge-pyo3"
    ))
}

/// Memory of CUDA devices.
pub(crate) mod memory {
    use dlbridge::{DType, Device, Tensor};

    use super::needs_feature;
    use crate::Result;
    use crate::ffi::stream::Stream;

    pub(crate) const STREAM: Stream = Stream::PER_THREAD;

    pub(crate) fn to_host(tensor: &Tensor) -> Result<Tensor> {
        Err(needs_feature(&format!("memory on {}", tensor.device())))
    }

    pub(crate) fn on_device(tensor: &Tensor) -> Result<Tensor> {
        to_host(tensor)
    }

    pub(crate) fn allocate(_: DType, _: &[i64], device: Device) -> Result<Tensor> {
        Err(needs_feature(&format!("memory on {device}")))
    }
}
