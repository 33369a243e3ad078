//! From a Python object to a tensor through its type's exchange table.
//! Finding the table belongs to `table`.
//! Invariant: what the table refuses is an exception, whether it set one or not.

use std::ptr;

use dlbridge::sys::DLPackExchangeAPI;
use dlbridge::{Flags, Tensor, TypeCode};
use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use crate::place::{Place, UNWRITTEN};
use crate::{Error, Result, release};

/// Takes an object's memory through the table of its type; `None` if `__dlpack__` must be asked.
/// Errors are boxed: large ones would be carried past every tensor.
#[inline(always)]
pub(crate) fn import(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
) -> std::result::Result<Option<Tensor>, Box<Error>> {
    let Some(from_object) = table.managed_tensor_from_py_object_no_sync else { return Ok(None) };
    let mut tensor = ptr::null_mut();
    // SAFETY: the object is of the type that published the table, and the interpreter attached (F1,
    // F5).
    let status = unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) };
    if status != 0 {
        return Err(Box::new(failure(object)));
    }
    // SAFETY: given to us by the table, whose producer is trusted (T1 to T9).
    let tensor = unsafe { release::adopt(tensor) }.map_err(|error| Box::new(error.into()))?;
    if is_complex(tensor.dtype().code) && !resolved(object).map_err(Box::new)? {
        return Ok(None);
    }
    Ok(Some(tensor))
}

/// Has the table of an object's type describe its memory in `place`, without an allocation; `None` if
/// the object must be imported. The flags say read-only, since a plain descriptor cannot say
/// whether the memory is.
#[inline(always)]
pub(crate) fn describe(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
    place: &mut Place,
) -> Result<Option<Flags>> {
    let Some(describe) = table.dltensor_from_py_object_no_sync else { return Ok(None) };
    // SAFETY: the object is of the type that published the table, and the interpreter attached (F1,
    // F5).
    let status = unsafe { describe(object.as_ptr().cast(), place.descriptor.as_mut_ptr()) };
    if status != 0 {
        return not_described(object);
    }
    let code = place.descriptor.code();
    // One comparison for integers and floats. A table that has written nothing, although it says so,
    // is asked for a tensor to own.
    if code >= TypeCode::COMPLEX && (code == UNWRITTEN || is_complex(code) && !resolved(object)?) {
        return Ok(None);
    }
    Ok(Some(Flags::READ_ONLY))
}

/// A table that describes nothing: not an error unless it ends the program, since what cannot be
/// lent, being read-only perhaps, may still be given.
#[cold]
fn not_described(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Flags>> {
    match failure(object) {
        Error::Python(error) if !error.is_instance_of::<PyException>(object.py()) => {
            Err(error.into())
        }
        _ => Ok(None),
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

#[inline]
fn is_complex(code: TypeCode) -> bool {
    // One comparison for integers and floats, whose codes are lower.
    code >= TypeCode::COMPLEX && matches!(code, TypeCode::COMPLEX | TypeCode::BCOMPLEX)
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
