//! The dicts of NumPy's and CUDA's array interfaces over a tensor's memory.
//! Reading such a dict belongs to `ffi::interface`.

use dlbridge::Tensor;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The dict of a tensor with elements of this type string.
pub(super) fn array_interface_of<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    typestr: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let itemsize = i64::from(tensor.dtype().bits / 8);
    let interface = PyDict::new(py);
    interface.set_item("version", 3)?;
    interface.set_item("typestr", typestr)?;
    interface.set_item("data", (tensor.data_ptr().addr(), tensor.is_read_only()))?;
    interface.set_item("shape", PyTuple::new(py, tensor.shape())?)?;
    // None means contiguous in row-major order.
    if !tensor.is_contiguous() {
        let strides = tensor.strides().iter().map(|stride| stride.wrapping_mul(itemsize));
        interface.set_item("strides", PyTuple::new(py, strides)?)?;
    }
    Ok(interface)
}
