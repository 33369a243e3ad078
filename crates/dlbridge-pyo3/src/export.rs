//! NumPy arrays over a tensor's memory.
//! A dtype or device that NumPy does not support falls back to `numpy.from_dlpack`, for its error message.
//! Invariant: the base of an array keeps the memory alive, and no consumer takes the memory from it.

use std::ffi::c_int;

use dlbridge::{DType, Device, Tensor};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
#[cfg(feature = "tensor-methods")]
use pyo3::types::PyString;

use crate::dtypes::numpy::number_of;
use crate::error::{error_of, unless_refused};
use crate::ffi::memory::viewed;
use crate::ffi::numpy::{Api, MAX_NDIM};
use crate::interpreter::module;
use crate::{Result, TensorObject};

/// Makes an array over a tensor's memory. It is read-only if the tensor is.
#[inline]
pub(crate) fn numpy_array(py: Python<'_>, tensor: Tensor) -> Result<Bound<'_, PyAny>> {
    if let (Some(number), Some(api)) = (number_for(&tensor), Api::get(py)?) {
        return api.array_over(py, number, tensor);
    }
    by_from_dlpack(&TensorObject::made(py, tensor)?)
}

/// An array over an object's memory.
#[inline]
pub(crate) fn numpy_array_of<'py>(object: &Bound<'py, TensorObject>) -> Result<Bound<'py, PyAny>> {
    let array = match Api::get(object.py())? {
        Some(api) => api.array_of(object, number_for)?,
        None => None,
    };
    array.map_or_else(|| without_api(object), Ok)
}

/// The same of a type, or by a NumPy, of which the C API does not make an array.
#[cold]
fn without_api<'py>(object: &Bound<'py, TensorObject>) -> Result<Bound<'py, PyAny>> {
    let dtype = object.get().on_host(object.py())?.dtype();
    if dtype.itemsize().is_none() {
        let message = format!(
            "dtype: expected elements of whole bytes, found {dtype}; dlbridge.from_dlpack(x).tobytes() has their bits"
        );
        return Err(error_of::<PyTypeError>(message).into());
    }
    match of_ml_dtypes(object)? {
        Some(array) => Ok(array),
        None => by_from_dlpack(object),
    }
}

#[cold]
fn by_from_dlpack<'py>(object: &Bound<'py, TensorObject>) -> Result<Bound<'py, PyAny>> {
    let numpy = module(intern!(object.py(), "numpy"))?;
    Ok(numpy.call_method1(intern!(object.py(), "from_dlpack"), (object,))?)
}

/// An array of a type that NumPy has from the package `ml_dtypes`: bfloat16, the floats of 8 bits, complex32.
/// `None` for another type, or without the package.
#[cold]
fn of_ml_dtypes<'py>(object: &Bound<'py, TensorObject>) -> Result<Option<Bound<'py, PyAny>>> {
    let (py, dtype) = (object.py(), object.get().inner().dtype());
    let bits = match dtype.itemsize() {
        Some(1) => DType::U8,
        Some(2) => DType::U16,
        Some(4) => DType::U32,
        _ => return Ok(None),
    };
    if number_of(dtype).is_some() {
        return Ok(None);
    }
    let Some(kind) = ml_dtype(py, dtype)? else { return Ok(None) };
    // The base of the array is a tensor of the bits: an object that Python code cannot change.
    let bits = TensorObject::made(py, viewed(&object.get().tensor, bits)?)?;
    Ok(Some(numpy_array_of(&bits)?.call_method1(intern!(py, "view"), (kind,))?))
}

/// The scalar type of the package `ml_dtypes` for a dtype that NumPy itself lacks. Without the package, each
/// question searches for it, and the caller has an error to raise.
#[cold]
fn ml_dtype(py: Python<'_>, dtype: DType) -> Result<Option<Bound<'_, PyAny>>> {
    let name = dtype.to_string();
    unless_refused(py, module(intern!(py, "ml_dtypes")).and_then(|module| module.getattr(name)))
}

/// The dtype of NumPy with the name of `dtype`.
#[cfg(feature = "tensor-methods")]
pub(crate) fn numpy_dtype_of(py: Python<'_>, dtype: DType) -> Result<Bound<'_, PyAny>> {
    let numpy = module(intern!(py, "numpy"))?;
    let kind = if number_of(dtype).is_some() { None } else { ml_dtype(py, dtype)? };
    let kind = match kind {
        Some(kind) => kind,
        None => PyString::new(py, &dtype.to_string()).into_any(),
    };
    Ok(numpy.call_method1(intern!(py, "dtype"), (kind,))?)
}

/// NumPy's type number for the tensor, if NumPy's C API can make an array of its memory.
#[inline]
fn number_for(tensor: &Tensor) -> Option<c_int> {
    let is_usual =
        tensor.device() == Device::CPU && tensor.ndim() <= MAX_NDIM && !tensor.data_ptr().is_null();
    if is_usual { number_of(tensor.dtype()) } else { None }
}
