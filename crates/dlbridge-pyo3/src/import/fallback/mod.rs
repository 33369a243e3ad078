//! Imports objects without DLPack through other protocols.
//! DLPack itself belongs to `import`.
//! Invariant: these protocols are tried after DLPack, those with the more precise description
//! first.

mod array_interface;
mod arrow;
#[cfg_attr(windows, path = "buffer_absent.rs")]
mod buffer;
mod cuda_array_interface;
mod interface;
mod memory;
mod typestr;

use dlbridge::Tensor;
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::Result;
use crate::import::protocol::Protocol;
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
    Ok(arrow::import_arrow(object)?.map(|tensor| (tensor, Protocol::Arrow)))
}

/// Imports device memory, ready for a stream.
pub(crate) fn import_cuda(
    object: Borrowed<'_, '_, PyAny>,
    stream: Stream,
) -> Result<Option<(Tensor, Protocol)>> {
    let tensor = cuda_array_interface::import_cuda_array_interface(object, stream)?;
    Ok(tensor.map(|tensor| (tensor, Protocol::CudaArrayInterface)))
}

/// Imports an object whose `__dlpack__` raised `BufferError`.
pub(crate) fn import_buffer(object: Borrowed<'_, '_, PyAny>) -> Result<Option<(Tensor, Protocol)>> {
    Ok(buffer::import_buffer(object)?.map(|tensor| (tensor, Protocol::Buffer)))
}

/// Whether a type has the buffer protocol.
pub(crate) fn has_buffer(kind: &Bound<'_, PyType>) -> bool {
    buffer::has_buffer(kind)
}
