//! Imports NumPy arrays of the package `ml_dtypes`, whose types NumPy itself does not export.
//! Exporting to them belongs to `export::numpy`.
//! Invariant: the bits are those of an array that is read from its C struct. An answer of another
//! object to `view` proves nothing about its memory.

use dlbridge::{DType, Tensor};
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use crate::Result;
use crate::dtypes::names::name_of;
use crate::ffi::memory::with_dtype;
use crate::ffi::numpy::Array;

/// Imports an array of bfloat16 or of a float of 8 bits, by its bits as integers; `None` for any other
/// object.
pub(super) fn import_ml_dtypes(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let py = object.py();
    let Some(dtype) = object.getattr_opt(intern!(py, "dtype"))? else { return Ok(None) };
    let name =
        dtype.getattr_opt(intern!(py, "name"))?.and_then(|name| name.extract::<String>().ok());
    let Some(dtype) = name.and_then(|name| name.parse::<DType>().ok()) else { return Ok(None) };
    let bits = match dtype.itemsize() {
        Some(1) => DType::U8,
        Some(2) => DType::U16,
        _ => return Ok(None),
    };
    let array = py.import(intern!(py, "numpy"))?.getattr(intern!(py, "ndarray"))?;
    // Of arrays of a derived class as well, `view` makes an array of NumPy's own class.
    let integers = object.call_method1(intern!(py, "view"), (name_of(py, bits)?, array))?;
    let Some(integers) = Array::of(integers.as_borrowed())? else { return Ok(None) };
    let Some(tensor) = integers.tensor()?.filter(|integers| integers.dtype() == bits) else {
        return Ok(None);
    };
    with_dtype(tensor, dtype).map(Some)
}
