//! From a tensor to Python: the capsule that answers a call of `__dlpack__`, and NumPy arrays over its memory.
//! What a request permits belongs to `dlbridge::protocol::call`. A dtype or device that NumPy does not support falls back
//! to `numpy.from_dlpack`, for its error message.
//! Invariant: the base of an array keeps the memory alive, and no consumer takes the memory from it.

use std::ffi::c_int;

use dlbridge::protocol::call::Request;
use dlbridge::{DType, Device, Tensor};
use pyo3::Borrowed;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::dtypes::numpy::number_of;
use crate::error::{error_of, unless_refused};
use crate::ffi::capsule;
use crate::ffi::memory::viewed;
use crate::ffi::numpy::{Api, MAX_NDIM};
use crate::interpreter::module;
use crate::stream::{Ready, Stream, copy, is_copied_to_host};
use crate::{Error, Result, TensorObject};

/// Makes a capsule over a tensor's memory, or over a copy. The requested stream waits until the
/// memory is `ready`.
pub(crate) fn answer<'py>(
    py: Python<'py>,
    request: Request,
    stream: Option<Borrowed<'_, 'py, PyAny>>,
    tensor: Tensor,
    ready: Option<&Ready>,
) -> Result<Bound<'py, PyAny>> {
    let device = tensor.device();
    let answer = request.answer(device, is_copied_to_host).map_err(Error::refused)?;
    let stream = Stream::requested(stream, answer.device)?;
    let exported = if answer.copy {
        copy(py, &tensor, ready, answer.device)?
    } else {
        if let Some(ready) = ready {
            ready.before(stream, device)?;
        }
        tensor
    };
    if answer.versioned { capsule::versioned(py, exported) } else { capsule::legacy(py, exported) }
}

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

/// What a function of a module makes of a tensor's array of NumPy.
pub(crate) fn forward<'py>(
    object: &Bound<'py, TensorObject>,
    library: &Bound<'py, PyString>,
    function: &Bound<'py, PyString>,
    arguments: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let array = (TensorObject::numpy(object)?,).into_pyobject(object.py())?;
    let arguments = array.add(arguments)?.cast_into::<PyTuple>().map_err(PyErr::from)?;
    Ok(module(library)?.call_method(function, arguments, keywords)?)
}
