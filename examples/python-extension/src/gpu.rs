//! GPU memory that Rust writes on a cudarc stream. Feature `cuda`.
//! Invariant: the driver is loaded on first use and never linked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaStream};
use dlbridge::{Device, Tensor, cudarc_0_19};
use dlbridge_pyo3::{Error, PyTensor, Result};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

fn failed(error: impl ToString) -> Error {
    Error::from(PyRuntimeError::new_err(error.to_string()))
}

/// The stream of this extension on a device. It is kept, because cudarc waits for all work of the device before
/// it makes the first one.
fn stream(device: Device) -> Result<Arc<CudaStream>> {
    static STREAMS: Mutex<BTreeMap<i32, Arc<CudaStream>>> = Mutex::new(BTreeMap::new());
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stream) = streams.get(&device.id) {
        return Ok(Arc::clone(stream));
    }
    let stream = cudarc_0_19::on_device(device, CudaContext::new_stream)?.map_err(failed)?;
    streams.insert(device.id, Arc::clone(&stream));
    Ok(stream)
}

/// A new vector in GPU memory, filled with `value` on the extension's own stream. The stream may still be
/// writing when the function returns; the consumer's stream waits for it.
#[pyfunction]
#[pyo3(signature = (len, value, *, device=0))]
pub(crate) fn filled(len: usize, value: f32, device: i32) -> Result<PyTensor> {
    let device = Device::cuda(device);
    let stream = stream(device)?;
    let slice = cudarc_0_19::on_device(device, |_| stream.clone_htod(&vec![value; len]))?;
    Ok(Tensor::try_from(slice.map_err(failed)?)?.into())
}

/// The float32 elements of `x`, which is on a GPU, copied by the extension's own stream. It waits for the work of
/// the framework that writes them.
#[pyfunction]
pub(crate) fn copied(x: PyTensor) -> Result<PyTensor> {
    let stream = stream(x.device())?;
    let copy = cudarc_0_19::with_slice::<f32, _>(&x, &stream, |slice| stream.clone_dtod(slice))?;
    Ok(Tensor::try_from(copy.map_err(failed)?)?.into())
}

/// Fills memory that a framework's allocator has just returned, on the default stream, which waits for the
/// framework's.
pub(crate) fn fill(tensor: &mut Tensor, value: f32) -> Result<()> {
    let stream = cudarc_0_19::context(tensor.device())?.default_stream();
    let values = vec![value; tensor.len()];
    let written = cudarc_0_19::with_view_mut::<f32, _>(tensor, &stream, |mut view| {
        stream.memcpy_htod(&values, &mut view).map_err(failed)
    });
    written?
}
