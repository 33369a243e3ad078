//! From a Python object to a tensor through its type's exchange table.
//! Finding the table belongs to `table`.
//! Invariant: Python code of an object runs before its memory is taken or described, never after
//! (`Forgotten`).

use std::ptr;

use dlbridge::sys::{
    DLPackDLTensorFromPyObjectNoSync, DLPackExchangeAPI, DLPackManagedTensorFromPyObjectNoSync,
};
use dlbridge::{Flags, Tensor, TypeCode};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use super::refusals;
use crate::place::{Described, Forgotten, Place};
use crate::{Error, Result, release};

/// Takes an object's memory through the table of its type; `None` if `__dlpack__` must be asked.
/// Errors are boxed: large ones would be carried past every tensor.
#[inline(always)]
pub(crate) fn import(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
) -> std::result::Result<Option<Tensor>, Box<Error>> {
    let Some(from_object) = table.managed_tensor_from_py_object_no_sync else { return Ok(None) };
    if refusals::expected_of(object, table) {
        return Ok(None);
    }
    let Some(tensor) = take(object, table, from_object)? else { return Ok(None) };
    if is_complex(tensor.dtype().code) {
        return take_again(object, table, from_object, Forgotten::tensor(tensor));
    }
    Ok(Some(tensor))
}

#[inline(always)]
fn take(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
    from_object: DLPackManagedTensorFromPyObjectNoSync,
) -> std::result::Result<Option<Tensor>, Box<Error>> {
    let mut tensor = ptr::null_mut();
    // SAFETY: the object is of the type that published the table, and the interpreter attached (F1,
    // F5).
    let status = unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) };
    if status != 0 {
        return refusals::after(object, table).map(|()| None).map_err(Box::new);
    }
    // SAFETY: given to us by the table, whose producer is trusted (T1 to T9).
    unsafe { release::adopt(tensor) }.map(Some).map_err(|error| Box::new(error.into()))
}

/// Asks an object that was complex whether its memory holds its values, then takes the memory that
/// it has after its Python code has run.
#[cold]
fn take_again(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
    from_object: DLPackManagedTensorFromPyObjectNoSync,
    forgotten: Forgotten<'_>,
) -> std::result::Result<Option<Tensor>, Box<Error>> {
    if !resolved(object, forgotten)? {
        return Ok(None);
    }
    take(object, table, from_object)
}

/// Has the table of an object's type describe its memory in `place`, without an allocation; `None` if
/// the object must be imported. The flags say read-only, since a plain descriptor cannot say
/// whether the memory is.
#[inline(always)]
pub(crate) fn describe<'p>(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
    place: &'p mut Place,
) -> Result<Option<Described<'p>>> {
    let Some(describe) = table.dltensor_from_py_object_no_sync else { return Ok(None) };
    if refusals::expected_of(object, table) {
        return Ok(None);
    }
    if !write(object, describe, place) {
        return not_described(object).map(|()| None);
    }
    // One comparison for integers and floats, whose codes are lower.
    if place.descriptor.code() >= TypeCode::COMPLEX && !describe_again(object, describe, place)? {
        return Ok(None);
    }
    // A table that has written nothing, although it says so, is asked for a tensor to own.
    Ok(place.described(Flags::READ_ONLY))
}

#[inline(always)]
fn write(
    object: Borrowed<'_, '_, PyAny>,
    describe: DLPackDLTensorFromPyObjectNoSync,
    place: &mut Place,
) -> bool {
    // SAFETY: the object is of the type that published the table, and the interpreter attached (F1,
    // F5).
    unsafe { describe(object.as_ptr().cast(), place.descriptor.as_mut_ptr()) == 0 }
}

/// Asks an object that was complex whether its memory holds its values, then has the memory
/// described that it has after its Python code has run. `false` if the object must be imported.
#[cold]
fn describe_again(
    object: Borrowed<'_, '_, PyAny>,
    describe: DLPackDLTensorFromPyObjectNoSync,
    place: &mut Place,
) -> Result<bool> {
    if !is_complex(place.descriptor.code()) {
        return Ok(true);
    }
    if !resolved(object, Forgotten::place(place)).map_err(|error| *error)? {
        return Ok(false);
    }
    let is_written = write(object, describe, place);
    if !is_written {
        not_described(object)?;
    }
    Ok(is_written)
}

/// A table that describes nothing: not an error unless it ends the program, since what cannot be
/// lent, being read-only perhaps, may still be given.
#[cold]
fn not_described(object: Borrowed<'_, '_, PyAny>) -> Result<()> {
    match refusals::failure(object) {
        Error::Python(error) if !error.is_instance_of::<PyException>(object.py()) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
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
fn resolved(
    object: Borrowed<'_, '_, PyAny>,
    _: Forgotten<'_>,
) -> std::result::Result<bool, Box<Error>> {
    match is_conjugated(object) {
        Ok(false) => Ok(true),
        Ok(true) => Err(Box::new(Error::buffer(
            "the tensor is conjugated lazily, wanted one whose memory holds its values; \
             call resolve_conj() first",
        ))),
        Err(error) if error.is_instance_of::<PyException>(object.py()) => Ok(false),
        Err(error) => Err(Box::new(error.into())),
    }
}

#[cold]
fn is_conjugated(object: Borrowed<'_, '_, PyAny>) -> PyResult<bool> {
    let Some(method) = object.getattr_opt(intern!(object.py(), "is_conj"))? else {
        return Ok(false);
    };
    method.call0()?.is_truthy()
}
