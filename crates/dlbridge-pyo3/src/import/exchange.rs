//! Imports a Python object through its type's exchange table.
//! Finding the table belongs to `types`, calling it to `ffi::published`.
//! Invariant: an object's Python code runs before its memory is imported or described, never after
//! (`Forgotten`).

use dlbridge::protocol::table::{CONJUGATED, NEGATED, ZEROS};
use dlbridge::{Device, Flags, Tensor};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use super::refusals;
use crate::ffi::descriptor::{Described, DescriptorSpace, Forgotten};
use crate::ffi::interpreter::through_pyo3;
use crate::ffi::published::{Describes, Gives, Published};
use crate::ffi::torch::{Values, values};
use crate::stream::Stream;
use crate::{Error, Result};

/// Imports an object through the table of its type; `None` if `__dlpack__` must be called.
#[inline(always)]
pub(super) fn import_by_table(published: Published<'_, '_>) -> Result<Option<Tensor>> {
    let Some(gives) = published.gives() else { return Ok(None) };
    if refusals::expected_of(published) {
        return Ok(None);
    }
    let Some(tensor) = take(published, &gives)? else { return Ok(None) };
    match values(published, tensor.dtype().code) {
        Values::InMemory => Ok(Some(tensor)),
        Values::Elsewhere(why) => Err(Error::buffer(why)),
        Values::Unknown => take_again(published, &gives, Forgotten::tensor(tensor)),
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
fn take_again(
    published: Published<'_, '_>,
    gives: &Gives<'_, '_>,
    forgotten: Forgotten<'_>,
) -> Result<Option<Tensor>> {
    if !resolved(published.object(), forgotten)? {
        return Ok(None);
    }
    take(published, gives)
}

/// Writes the descriptor of an object's memory to `space` through the table of its type, without an
/// allocation; `None` if the object must be imported. The flags are read-only, since a plain
/// descriptor has none.
#[inline(always)]
pub(super) fn describe_by_table<'p>(
    published: Published<'_, '_>,
    space: &'p mut DescriptorSpace,
) -> Result<Option<Described<'p>>> {
    let Some(describes) = published.describes() else { return Ok(None) };
    if refusals::expected_of(published) {
        return Ok(None);
    }
    let object = published.object();
    if !describes.write(space) {
        return not_described(object).map(|()| None);
    }
    match values(published, space.code()) {
        Values::InMemory => {}
        Values::Elsewhere(why) => return Err(Error::buffer(why)),
        Values::Unknown => {
            if !describe_again(object, &describes, space)? {
                return Ok(None);
            }
        }
    }
    // A table that has written nothing, although it says so, is asked for a tensor to own.
    Ok(space.described(Flags::READ_ONLY))
}

/// Checks whether the memory of an object holds its values, then describes the memory that
/// the object has after its Python code has run. `false` if the object must be imported.
#[cold]
fn describe_again(
    object: Borrowed<'_, '_, PyAny>,
    describes: &Describes<'_, '_>,
    space: &mut DescriptorSpace,
) -> Result<bool> {
    if !resolved(object, Forgotten::space(space))? {
        return Ok(false);
    }
    let is_written = describes.write(space);
    if !is_written {
        not_described(object)?;
    }
    Ok(is_written)
}

/// Handles a table that fails to describe. Only an interrupt is an error: an object that cannot be
/// borrowed, because it is read-only for example, may still be imported.
#[cold]
fn not_described(object: Borrowed<'_, '_, PyAny>) -> Result<()> {
    match refusals::failure(object) {
        Error::Python(error) if !error.is_instance_of::<PyException>(object.py()) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
}

/// Whether a tensor's memory holds the values of its object. An object that raises (`false`) is
/// imported by `__dlpack__`.
#[cold]
fn resolved(object: Borrowed<'_, '_, PyAny>, _: Forgotten<'_>) -> Result<bool> {
    match through_pyo3(|| elsewhere(object)) {
        Ok(None) => Ok(true),
        Ok(Some(why)) => Err(Error::buffer(why)),
        Err(error) if error.is_instance_of::<PyException>(object.py()) => Ok(false),
        Err(error) => Err(error.into()),
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
