//! Imports NumPy arrays of the package `ml_dtypes`, whose types NumPy itself does not export.
//! Exporting to them belongs to `export::numpy`.

use dlbridge::{DType, Tensor};
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use super::memory::ForeignMemory;
use crate::Result;
use crate::import::{ImportOptions, import};

/// Imports an array of bfloat16 or of a float of 8 bits, by its bits as integers; `None` for any other
/// object.
pub(super) fn import_ml_dtypes(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let py = object.py();
    let Some(dtype) = object.getattr_opt(intern!(py, "dtype"))? else { return Ok(None) };
    let name =
        dtype.getattr_opt(intern!(py, "name"))?.and_then(|name| name.extract::<String>().ok());
    let Some(dtype) = name.and_then(|name| name.parse::<DType>().ok()) else { return Ok(None) };
    let bits = match dtype.itemsize() {
        Some(1) => "uint8",
        Some(2) => "uint16",
        _ => return Ok(None),
    };
    let integers = object.call_method1(intern!(py, "view"), (bits,))?;
    let tensor = import(integers.as_borrowed(), ImportOptions::default())?;
    let size = i64::from(dtype.bits / 8);
    let memory = ForeignMemory {
        data: tensor.data_ptr().cast(),
        device: tensor.device(),
        dtype,
        shape: tensor.shape().to_vec(),
        strides: Some(tensor.strides().iter().map(|stride| stride.wrapping_mul(size)).collect()),
        read_only: tensor.is_read_only(),
    };
    // SAFETY: the memory of `tensor`, which is the owner, with elements of the same size (T3).
    unsafe { memory.tensor(tensor) }.map(Some)
}
