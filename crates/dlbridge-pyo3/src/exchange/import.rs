//! From a Python object to a tensor through its type's exchange table.
//! Finding the table belongs to `table`.
//! Invariant: what the table refuses is an exception, whether it set one or not.

use std::mem::MaybeUninit;
use std::ptr;

use dlbridge::sys::{DLPackExchangeAPI, DLTensor};
use dlbridge::{Flags, Tensor, TypeCode};
use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use crate::{Error, Result};

/// Takes an object's memory through the table of its type; `None` if `__dlpack__` must be asked.
#[inline(always)]
pub(crate) fn import(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
) -> Option<Result<Tensor>> {
    let from_object = table.managed_tensor_from_py_object_no_sync?;
    let mut tensor = ptr::null_mut();
    // SAFETY: the object is of the type that published the table, and the interpreter attached (F1,
    // F5).
    let status = unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) };
    if status != 0 {
        return Some(Err(failure(object)));
    }
    // SAFETY: given to us by the table, whose producer is trusted (T1 to T9).
    match unsafe { Tensor::from_raw(tensor) } {
        Ok(tensor) if is_complex(tensor.dtype().code) => match resolved(object) {
            Ok(true) => Some(Ok(tensor)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        },
        Ok(tensor) => Some(Ok(tensor)),
        Err(error) => Some(Err(error.into())),
    }
}

/// Lends an object's memory through the table of its type, without an allocation; gives `function`
/// back if the object must be imported. Flagged read-only, since a plain descriptor cannot say
/// whether it is.
///
/// # Safety
///
/// Nobody moves or frees the object's memory until `function` returns.
#[inline]
pub(crate) unsafe fn lend<F: FnOnce(&Tensor) -> R, R>(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
    function: F,
) -> std::result::Result<Result<R>, F> {
    let Some(from_object) = table.dltensor_from_py_object_no_sync else { return Err(function) };
    let mut tensor = MaybeUninit::<DLTensor>::zeroed();
    // SAFETY: the object is of the type that published the table, and the interpreter attached (F1,
    // F5).
    let status = unsafe { from_object(object.as_ptr().cast(), tensor.as_mut_ptr()) };
    if status != 0 {
        return match failure(object) {
            Error::Python(error) if !error.is_instance_of::<PyException>(object.py()) => {
                Ok(Err(error.into()))
            }
            // What cannot be lent, since it is read-only perhaps, may still be given.
            _ => Err(function),
        };
    }
    // SAFETY: zeros are a descriptor, too, should the table have written nothing (T2).
    let tensor = unsafe { tensor.assume_init_ref() };
    if is_complex(TypeCode(tensor.dtype.code.0)) {
        match resolved(object) {
            Ok(true) => {}
            Ok(false) => return Err(function),
            Err(error) => return Ok(Err(error)),
        }
    }
    // SAFETY: described by the table, whose producer is trusted as SAFETY.md lists, and alive until
    // `function` returns (the caller's duty).
    let result = unsafe { Tensor::with_borrowed_raw(tensor, Flags::READ_ONLY, function) };
    Ok(result.map_err(Error::Tensor))
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

#[inline]
fn is_complex(code: TypeCode) -> bool {
    matches!(code, TypeCode::COMPLEX | TypeCode::BCOMPLEX)
}

/// Whether a tensor's memory holds the values of its object: PyTorch conjugates lazily, and its
/// table hands out the numbers before that. Only complex tensors pay for the question; an object
/// that does not answer it (`false`) is left to `__dlpack__`.
#[cold]
fn resolved(object: Borrowed<'_, '_, PyAny>) -> Result<bool> {
    match is_conjugated(object) {
        Ok(false) => Ok(true),
        Ok(true) => Err(Error::buffer(
            "the tensor is conjugated lazily, wanted one whose memory holds its values; \
             call resolve_conj() first",
        )),
        Err(error) if error.is_instance_of::<PyException>(object.py()) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cold]
fn is_conjugated(object: Borrowed<'_, '_, PyAny>) -> PyResult<bool> {
    let Some(method) = object.getattr_opt(intern!(object.py(), "is_conj"))? else {
        return Ok(false);
    };
    method.call0()?.is_truthy()
}
