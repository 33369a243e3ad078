//! Imports a Python object through its type's exchange table.
//! Finding the table belongs to `types`, calling it to `ffi::published`.
//! Invariant: an object's Python code runs before its memory is imported, never after.

use dlbridge::protocol::table::{CONJUGATED, NEGATED, ZEROS};
use dlbridge::{Device, Tensor};
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use super::refusals;
use crate::error::unless_refused;
use crate::ffi::published::{Gives, Published};
use crate::ffi::torch::{Values, values};
use crate::interpreter::through_pyo3;
use crate::stream::Stream;
use crate::{Error, Result};

/// Imports an object through the table of its type; `None` if `__dlpack__` must be called.
#[inline(always)]
pub(super) fn import_by_table(published: Published<'_, '_>) -> Result<Option<Tensor>> {
    let Some(gives) = published.gives() else { return Ok(None) };
    if refusals::expected_of(published)? {
        return Ok(None);
    }
    let Some(tensor) = take(published, &gives)? else { return Ok(None) };
    match values(published, tensor.dtype().code) {
        Values::InMemory => Ok(Some(tensor)),
        Values::Elsewhere(why) => Err(Error::buffer(why)),
        Values::Unknown => {
            // The object's Python code may move or free the memory.
            drop(tensor);
            take_again(published, &gives)
        }
    }
}

#[inline(always)]
fn take(published: Published<'_, '_>, gives: &Gives<'_, '_>) -> Result<Option<Tensor>> {
    match gives.tensor()? {
        Some(tensor) => Ok(Some(tensor)),
        None => refusals::after(published).map(|()| None),
    }
}

/// Checks whether the memory of an object holds its values, then imports the memory that the
/// object has after its Python code has run.
#[cold]
fn take_again(published: Published<'_, '_>, gives: &Gives<'_, '_>) -> Result<Option<Tensor>> {
    if !resolved(published.object())? {
        return Ok(None);
    }
    take(published, gives)
}

/// Whether a tensor's memory holds the values of its object. An object that raises (`false`) is
/// imported by `__dlpack__`.
#[cold]
fn resolved(object: Borrowed<'_, '_, PyAny>) -> Result<bool> {
    match unless_refused(object.py(), through_pyo3(|| elsewhere(object)))? {
        Some(None) => Ok(true),
        Some(Some(why)) => Err(Error::buffer(why)),
        None => Ok(false),
    }
}

/// Why an object's memory does not hold its values, by PyTorch's methods, if it has them.
#[cold]
pub(super) fn elsewhere(object: Borrowed<'_, '_, PyAny>) -> PyResult<Option<&'static str>> {
    let py = object.py();
    let methods = [
        (intern!(py, "is_conj"), CONJUGATED),
        (intern!(py, "is_neg"), NEGATED),
        (intern!(py, "_is_zerotensor"), ZEROS),
    ];
    for (name, why) in methods {
        if let Some(method) = object.getattr_opt(name)? {
            if method.call0()?.is_truthy()? {
                return Ok(Some(why));
            }
        }
    }
    Ok(None)
}

/// The current stream of the table of an object's type.
#[cold]
pub(crate) fn current_stream(published: Published<'_, '_>, device: Device) -> Result<Stream> {
    published.current_stream(device).ok_or_else(|| refusals::failure(published.object()))
}
