//! Imports objects without DLPack through other protocols.
//! DLPack itself belongs to `import`.
//! Invariant: these protocols are tried after DLPack, those with the more precise description
//! first.

mod array_interface;
mod arrow;
mod cuda_array_interface;
mod ml_dtypes;

use dlbridge::Tensor;
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use crate::Result;
use crate::error::unless_refused;
use crate::ffi::buffer;
use crate::import::options::Protocol;
use crate::stream::Stream;

/// Imports an object through the first protocol that it has; `None` if it has none.
/// Device memory is ready for the default stream.
pub(crate) fn import_by_fallback(
    object: Borrowed<'_, '_, PyAny>,
) -> Result<Option<(Tensor, Protocol)>> {
    if let Some(outcome) = import_cuda(object, Stream::DEFAULT)? {
        return Ok(Some(outcome));
    }
    if let Some(outcome) = import_buffer(object)? {
        return Ok(Some(outcome));
    }
    if let Some(tensor) = array_interface::import_array_interface(object)? {
        return Ok(Some((tensor, Protocol::ArrayInterface)));
    }
    if let Some(tensor) = arrow::import_arrow(object)? {
        return Ok(Some((tensor, Protocol::Arrow)));
    }
    Ok(arrow::import_stream(object)?.map(|tensor| (tensor, Protocol::ArrowStream)))
}

/// Copies the chunks of an object that has `__arrow_c_stream__` and neither DLPack nor a buffer. `None`
/// for other objects.
pub(crate) fn copy_chunks(object: Borrowed<'_, '_, PyAny>) -> Result<Option<(Tensor, Protocol)>> {
    let py = object.py();
    let is_chunked = object.hasattr(intern!(py, "__arrow_c_stream__"))?
        && !object.hasattr(intern!(py, "__dlpack__"))?
        && !object.hasattr(intern!(py, "__arrow_c_array__"))?
        && !buffer::has_buffer(&object.get_type());
    if !is_chunked {
        return Ok(None);
    }
    Ok(arrow::copy_stream(object)?.map(|tensor| (tensor, Protocol::ArrowStream)))
}

/// Imports device memory, ready for a stream.
pub(crate) fn import_cuda(
    object: Borrowed<'_, '_, PyAny>,
    stream: Stream,
) -> Result<Option<(Tensor, Protocol)>> {
    let tensor = cuda_array_interface::import_cuda_array_interface(object, stream)?;
    Ok(tensor.map(|tensor| (tensor, Protocol::CudaArrayInterface)))
}

/// Imports an object with the buffer protocol.
pub(crate) fn import_buffer(object: Borrowed<'_, '_, PyAny>) -> Result<Option<(Tensor, Protocol)>> {
    if !buffer::has_buffer(&object.get_type()) {
        return Ok(None);
    }
    Ok(Some((buffer::import_buffer(object)?, Protocol::Buffer)))
}

/// Imports an array of JAX by its buffer; `None` for one that has none, or was deleted.
pub(crate) fn import_jax(object: Borrowed<'_, '_, PyAny>) -> Result<Option<(Tensor, Protocol)>> {
    let found = unless_refused(object.py(), buffer::import_jax(object))?;
    Ok(found.map(|tensor| (tensor, Protocol::Buffer)))
}

/// Imports an object whose `__dlpack__` raised `BufferError`; `None` if other ways to its memory refuse
/// it as well, whose errors say less than that exception.
pub(crate) fn import_refused(
    object: Borrowed<'_, '_, PyAny>,
) -> Result<Option<(Tensor, Protocol)>> {
    let py = object.py();
    if let Some(found) = unless_refused(py, import_buffer(object))?.flatten() {
        return Ok(Some(found));
    }
    let tensor = unless_refused(py, ml_dtypes::import_ml_dtypes(object))?.flatten();
    Ok(tensor.map(|tensor| (tensor, Protocol::ArrayInterface)))
}
