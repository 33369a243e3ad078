//! From a Python object to a tensor through its type's exchange table.
//! Finding the table belongs to `table`.
//! Invariant: what the table refuses is an exception, whether it set one or not.

use std::ptr;

use dlbridge::sys::DLPackExchangeAPI;
use dlbridge::{Tensor, TypeCode};
use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use crate::{Error, Result};

/// Takes an object's memory through the table of its type; `None` if `__dlpack__` must be asked.
#[inline]
pub(crate) fn import(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
) -> Option<Result<Tensor>> {
    let from_object = table.managed_tensor_from_py_object_no_sync?;
    let mut tensor = ptr::null_mut();
    // SAFETY: the object is of the type that published the table, and the interpreter attached.
    let status = unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) };
    if status != 0 {
        return Some(Err(failure(object)));
    }
    // SAFETY: given to us by the table, whose producer is trusted as SAFETY.md lists.
    match unsafe { Tensor::from_raw(tensor) } {
        Ok(tensor) => resolved(object, tensor),
        Err(error) => Some(Err(error.into())),
    }
}

/// What the table raised; some fail without raising anything.
#[cold]
pub(crate) fn failure(object: Borrowed<'_, '_, PyAny>) -> Error {
    let py = object.py();
    let error = PyErr::take(py).unwrap_or_else(|| {
        let kind = object.get_type();
        PyBufferError::new_err(format!("{kind}: its exchange table failed without a reason"))
    });
    Error::Python(error)
}

/// Refuses a tensor whose numbers are not those of its object: PyTorch conjugates lazily, and its
/// table hands out the numbers before that. Only complex tensors pay for the question; an object
/// that does not answer it is left to `__dlpack__`.
#[inline]
fn resolved(object: Borrowed<'_, '_, PyAny>, tensor: Tensor) -> Option<Result<Tensor>> {
    let is_complex = matches!(tensor.dtype().code, TypeCode::COMPLEX | TypeCode::BCOMPLEX);
    if !is_complex {
        return Some(Ok(tensor));
    }
    match is_conjugated(object) {
        Ok(false) => Some(Ok(tensor)),
        Ok(true) => Some(Err(Error::buffer(
            "the tensor is conjugated lazily, wanted one whose memory holds its values; \
             call resolve_conj() first",
        ))),
        Err(error) if error.is_instance_of::<PyException>(object.py()) => None,
        Err(error) => Some(Err(error.into())),
    }
}

#[cold]
fn is_conjugated(object: Borrowed<'_, '_, PyAny>) -> PyResult<bool> {
    let Some(method) = object.getattr_opt(intern!(object.py(), "is_conj"))? else {
        return Ok(false);
    };
    method.call0()?.is_truthy()
}
