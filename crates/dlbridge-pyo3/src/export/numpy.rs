//! Makes a NumPy array over a tensor's memory.
//! A dtype or device that NumPy does not support falls back to `numpy.from_dlpack`, for its error
//! message.
//! Invariant: the array's base keeps the memory alive, and no consumer accepts that base.

use std::ffi::c_int;

use dlbridge::{DType, Device, Tensor};
use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::dtypes::numpy::number_of;
use crate::dtypes::typestr;
use crate::ffi::numpy::{Api, MAX_RANK};
use crate::{Result, TensorObject};

/// Makes an array over a tensor's memory. It is read-only if the tensor is.
pub(crate) fn array(py: Python<'_>, tensor: Tensor) -> Result<Bound<'_, PyAny>> {
    if let (Some(number), Some(api)) = (number_for(&tensor), Api::get(py)?) {
        return api.array_over(py, number, tensor);
    }
    let from_dlpack = py.import(intern!(py, "numpy"))?.getattr(intern!(py, "from_dlpack"))?;
    Ok(from_dlpack.call1((TensorObject::new(tensor).into_bound(py)?,))?)
}

/// An array of a type that NumPy has from the package `ml_dtypes`: bfloat16 and the floats of 8 bits.
/// `None` for another type, or without the package.
pub(crate) fn of_ml_dtypes<'py>(
    object: &Bound<'py, TensorObject>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (py, tensor) = (object.py(), object.get().inner());
    let dtype = tensor.dtype();
    let bits = typestr::of_bits(dtype).filter(|_| dtype.bits <= 16);
    let (Some(bits), Some(kind)) = (bits, ml_dtype(py, dtype)) else { return Ok(None) };
    let interface = described(py, tensor, &bits)?;
    // The array keeps the object that it reads the interface from, which keeps the tensor.
    let fields = PyDict::new(py);
    fields.set_item("__array_interface__", interface)?;
    fields.set_item("tensor", object)?;
    let interface = py.import("types")?.getattr("SimpleNamespace")?.call((), Some(&fields))?;
    let array = py.import(intern!(py, "numpy"))?.call_method1("asarray", (interface,))?;
    array.call_method1("view", (kind,)).map(Some)
}

/// The scalar type of the package `ml_dtypes` for a dtype.
fn ml_dtype(py: Python<'_>, dtype: DType) -> Option<Bound<'_, PyAny>> {
    py.import(intern!(py, "ml_dtypes")).ok()?.getattr(dtype.to_string()).ok()
}

/// The dtype of NumPy with the name of `dtype`.
pub(crate) fn dtype_of(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyAny>> {
    let numpy = py.import(intern!(py, "numpy"))?;
    match ml_dtype(py, dtype) {
        Some(kind) => numpy.call_method1(intern!(py, "dtype"), (kind,)),
        None => numpy.call_method1(intern!(py, "dtype"), (dtype.to_string(),)),
    }
}

/// A tensor's dict for `__array_interface__` (version 3 of NumPy's array interface protocol).
///
/// # Errors
///
/// An `AttributeError` for a dtype that the protocol lacks, since consumers then try others.
pub(crate) fn interface<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyDict>> {
    let dtype = tensor.dtype();
    match typestr::of(dtype) {
        Some(typestr) => described(py, tensor, &typestr),
        None => {
            let message = format!("expected a dtype of NumPy's own, found {dtype}; use x.numpy()");
            Err(PyAttributeError::new_err(message))
        }
    }
}

/// The dict of a tensor with elements of this type string.
fn described<'py>(py: Python<'py>, tensor: &Tensor, typestr: &str) -> PyResult<Bound<'py, PyDict>> {
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

/// NumPy's type number for the tensor, if NumPy's C API can make an array of its memory.
#[inline]
fn number_for(tensor: &Tensor) -> Option<c_int> {
    let is_usual =
        tensor.device() == Device::CPU && tensor.rank() <= MAX_RANK && !tensor.data_ptr().is_null();
    if is_usual { number_of(tensor.dtype()) } else { None }
}

/// What a function of a module makes of a tensor's array of NumPy.
pub(crate) fn forward<'py>(
    object: &Bound<'py, TensorObject>,
    module: &str,
    function: &str,
    arguments: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let array = PyTuple::new(object.py(), [TensorObject::numpy(object)?])?;
    let arguments = array.add(arguments)?.cast_into::<PyTuple>().map_err(PyErr::from)?;
    Ok(object.py().import(module)?.call_method(function, arguments, keywords)?)
}
