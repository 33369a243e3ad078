//! `__cuda_array_interface__` of `dlbridge.Tensor`.

use dlbridge::Device;
use dlbridge::protocol::stream::{Platform, platform};
use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::interface::array_interface_of;
use crate::dtypes::numpy::typestr_of;
use crate::error::error_of;
use crate::stream::{Ready, Stream};
use crate::{Result, TensorObject};

/// The dict for `__cuda_array_interface__` (version 3), with a stream that runs work once the memory is ready.
///
/// # Errors
///
/// An `AttributeError` for memory and dtypes that the protocol lacks, since consumers then try others.
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
    let interface = array_interface_of(py, tensor, &typestr)?;
    if let Some(ready) = &object.ready {
        interface.set_item(intern!(py, "stream"), stream_number(ready, device)?)?;
    }
    Ok(interface)
}

/// The number of a stream that runs work once the memory is ready: the memory's own, or the default one, which waits.
fn stream_number(ready: &Ready, device: Device) -> Result<Option<i64>> {
    match ready {
        Ready::Stream(own) => own.number_on(device),
        Ready::Event(_) => {
            ready.before(Stream::DEFAULT, device)?;
            Stream::DEFAULT.number_on(device)
        }
    }
}
