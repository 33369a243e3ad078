//! Memory of a GPU, written by Rust on a stream of cudarc's. Feature `cuda`.
//! Functions over host memory do not belong here (see `lib`).
//! Invariant: nothing is linked: the driver is loaded when it is first used.

use dlbridge::{Device, Tensor, cudarc_0_19};
use dlbridge_pyo3::{Error, PyTensor, Result};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

fn failed(error: impl ToString) -> Error {
    Error::Python(PyRuntimeError::new_err(error.to_string()))
}

/// A vector in new memory of a GPU, full of `value`. What gives it is a stream of its own, which
/// may be writing still: whoever takes it has its stream wait.
#[pyfunction]
#[pyo3(signature = (len, value, *, device=0))]
pub(crate) fn filled(len: usize, value: f32, device: i32) -> Result<PyTensor> {
    let context = cudarc_0_19::context(Device::cuda(device))?;
    let stream = context.new_stream().map_err(failed)?;
    let slice = stream.clone_htod(&vec![value; len]).map_err(failed)?;
    Ok(Tensor::try_from(slice)?.into())
}

/// Writes to memory that a framework's allocator made just now, on the default stream.
pub(crate) fn fill(tensor: &mut Tensor, value: f32) -> Result<()> {
    let stream = cudarc_0_19::context(tensor.device())?.default_stream();
    let values = vec![value; tensor.len()];
    let written = cudarc_0_19::with_view_mut::<f32, _>(tensor, &stream, |mut view| {
        stream.memcpy_htod(&values, &mut view).map_err(failed)
    });
    written?
}
