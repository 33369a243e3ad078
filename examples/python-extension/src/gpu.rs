//! GPU memory that Rust writes on a cudarc stream. Feature `cuda`.
//! Invariant: the driver is loaded on first use and never linked.

use dlbridge::{Device, Tensor, cudarc_0_19};
use dlbridge_pyo3::{Error, PyTensor, Result};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

fn failed(error: impl ToString) -> Error {
    Error::from(PyRuntimeError::new_err(error.to_string()))
}

/// A new vector in GPU memory, filled with `value` on a stream of its own. The stream may still be
/// writing when the function returns; the consumer's stream waits for it.
#[pyfunction]
#[pyo3(signature = (len, value, *, device=0))]
pub(crate) fn filled(len: usize, value: f32, device: i32) -> Result<PyTensor> {
    let context = cudarc_0_19::context(Device::cuda(device))?;
    let stream = context.new_stream().map_err(failed)?;
    let slice = stream.clone_htod(&vec![value; len]).map_err(failed)?;
    Ok(Tensor::try_from(slice)?.into())
}

/// Fills memory that a framework's allocator has just returned, on the default stream.
pub(crate) fn fill(tensor: &mut Tensor, value: f32) -> Result<()> {
    let stream = cudarc_0_19::context(tensor.device())?.default_stream();
    let values = vec![value; tensor.len()];
    let written = cudarc_0_19::with_view_mut::<f32, _>(tensor, &stream, |mut view| {
        stream.memcpy_htod(&values, &mut view).map_err(failed)
    });
    written?
}
