//! Imports an object's memory without a device or copy request, by the fastest path of its type.

use dlbridge::Tensor;
use pyo3::Borrowed;
use pyo3::prelude::*;

use super::options::Protocol;
use super::{advice, dlpack, exchange, fallback};
use crate::ffi::buffer;
use crate::ffi::callbacks::{exporting, nesting};
use crate::types::{Path, path_of};
use crate::{Result, TensorObject, release};

/// Imports without a request for a device, a copy or a stream.
#[inline(always)]
pub(super) fn import_shared(object: Borrowed<'_, '_, PyAny>) -> Result<(Tensor, Protocol)> {
    release::drain(object.py());
    let path = path_of(object)?;
    if let Some(Path::Own(_)) = path {
        if let Some(tensor) = TensorObject::returned(object)? {
            return Ok((tensor, Protocol::ExchangeApi));
        }
    }
    import_by_path(object, path)
}

/// Imports by the path of the object's type.
#[inline(always)]
pub(super) fn import_by_path(
    object: Borrowed<'_, '_, PyAny>,
    path: Option<Path<'_, '_>>,
) -> Result<(Tensor, Protocol)> {
    match path {
        None => {}
        Some(Path::NumPy(array)) => {
            if let Some(tensor) = array.tensor()? {
                return Ok((tensor, Protocol::NumPy));
            }
        }
        Some(Path::Buffer) => return Ok((buffer::import_buffer(object)?, Protocol::Buffer)),
        Some(Path::Jax) => {
            if let Some(found) = fallback::import_jax(object)? {
                return Ok(found);
            }
        }
        Some(Path::Masked) => exporting(|| advice::refuse_mask(object))?,
        Some(Path::TorchSubclass) => exporting(|| advice::refuse_without_values(object))?,
        Some(Path::Own(published) | Path::Table(published)) => {
            if let Some(tensor) = exchange::import_by_table(published)? {
                return Ok((tensor, Protocol::ExchangeApi));
            }
        }
    }
    nesting(|| dlpack::import_by_dlpack(object))
}
