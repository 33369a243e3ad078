//! The dicts of NumPy's and CUDA's array interfaces over a tensor's memory.
//! Reading such a dict belongs to `ffi::interface`.

use dlbridge::Tensor;
#[cfg(feature = "cuda")]
use dlbridge::{
    Device,
    protocol::stream::{Platform, platform},
};
use pyo3::exceptions::PyAttributeError;
#[cfg(feature = "cuda")]
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::TensorObject;
use crate::dtypes::numpy::typestr_of;
use crate::error::error_of;
#[cfg(feature = "cuda")]
use crate::{
    Result,
    stream::{Ready, Stream},
};

/// The dict of a tensor with elements of this type string.
fn interface_of<'py>(
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

/// The dict for `__array_interface__` (version 3 of NumPy's array interface protocol).
///
/// # Errors
///
/// An `AttributeError` for a dtype that the protocol lacks, since consumers then try others.
#[cfg(feature = "tensor-methods")]
pub(super) fn array_interface_of<'py>(
    py: Python<'py>,
    object: &TensorObject,
) -> PyResult<Bound<'py, PyDict>> {
    let refused = |message: String| Err(error_of::<PyAttributeError>(message));
    let tensor = match object.on_host(py) {
        Ok(tensor) => tensor,
        Err(error) => return refused(error.to_string()),
    };
    match typestr_of(tensor.dtype()) {
        Some(typestr) => interface_of(py, tensor, &typestr),
        None => refused(format!(
            "expected a dtype of NumPy's own, found {}; use x.numpy()",
            tensor.dtype()
        )),
    }
}

/// The dict for `__cuda_array_interface__` (version 3), with a stream that runs work once the memory is ready.
///
/// # Errors
///
/// An `AttributeError` for memory and dtypes that the protocol lacks, since consumers then try others.
#[cfg(feature = "cuda")]
pub(super) fn cuda_array_interface_of<'py>(
    py: Python<'py>,
    object: &TensorObject,
) -> Result<Bound<'py, PyDict>> {
    let tensor = object.inner();
    let device = tensor.device();
    let is_cuda = platform(device) == Some(Platform::Cuda);
    let Some(typestr) = typestr_of(tensor.dtype()).filter(|_| is_cuda) else {
        let dtype = tensor.dtype();
        let message =
            format!("expected a dtype of NumPy in CUDA memory, found {dtype} on {device}");
        return Err(error_of::<PyAttributeError>(message).into());
    };
    let interface = interface_of(py, tensor, &typestr)?;
    if let Some(ready) = &object.ready {
        interface.set_item(intern!(py, "stream"), stream_number(ready, device)?)?;
    }
    Ok(interface)
}

/// The number of a stream that runs work once the memory is ready: the memory's own, or the default one, which waits.
#[cfg(feature = "cuda")]
fn stream_number(ready: &Ready, device: Device) -> Result<Option<i64>> {
    match ready {
        Ready::Stream(own) => own.number_on(device),
        Ready::Event(_) => {
            ready.before(Stream::DEFAULT, device)?;
            Stream::DEFAULT.number_on(device)
        }
    }
}
