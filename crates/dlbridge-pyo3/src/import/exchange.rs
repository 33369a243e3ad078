//! Imports a Python object through its type's exchange table.
//! Finding the table belongs to `types`.
//! Invariant: an object's Python code runs before its memory is imported or described, never after
//! (`Forgotten`).

use std::ptr;

use dlbridge::protocol::table::{CONJUGATED, may_be_conjugated};
use dlbridge::sys::{
    DLDeviceType, DLPackDLTensorFromPyObjectNoSync, DLPackExchangeAPI,
    DLPackManagedTensorFromPyObjectNoSync,
};
use dlbridge::{Device, Flags, Tensor, TypeCode};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use super::descriptor::{Described, DescriptorSpace, Forgotten};
use super::refusals;
use crate::stream::Stream;
use crate::{Error, Result, release};

/// Imports an object through the table of its type; `None` if `__dlpack__` must be called.
#[inline(always)]
pub(super) fn import_by_table(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
) -> Result<Option<Tensor>> {
    let Some(from_object) = table.managed_tensor_from_py_object_no_sync else { return Ok(None) };
    if refusals::expected_of(object, table) {
        return Ok(None);
    }
    let Some(tensor) = take(object, table, from_object)? else { return Ok(None) };
    if may_be_conjugated(tensor.dtype().code) {
        return take_again(object, table, from_object, Forgotten::tensor(tensor));
    }
    Ok(Some(tensor))
}

#[inline(always)]
fn take(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
    from_object: DLPackManagedTensorFromPyObjectNoSync,
) -> Result<Option<Tensor>> {
    let mut tensor = ptr::null_mut();
    // SAFETY: the object is of the type that published the table, and the interpreter attached (F1,
    // F5).
    let status = unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) };
    if status != 0 {
        return refusals::after(object, table).map(|()| None);
    }
    // SAFETY: given to us by the table, whose producer is trusted (T1 to T9).
    Ok(Some(unsafe { release::adopt(tensor) }?))
}

/// Checks whether the memory of a complex object holds its values, then imports the memory that the
/// object has after its Python code has run.
#[cold]
fn take_again(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
    from_object: DLPackManagedTensorFromPyObjectNoSync,
    forgotten: Forgotten<'_>,
) -> Result<Option<Tensor>> {
    if !resolved(object, forgotten)? {
        return Ok(None);
    }
    take(object, table, from_object)
}

/// Writes the descriptor of an object's memory to `space` through the table of its type, without an
/// allocation; `None` if the object must be imported. The flags are read-only, since a plain
/// descriptor has none.
#[inline(always)]
pub(super) fn describe_by_table<'p>(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
    space: &'p mut DescriptorSpace,
) -> Result<Option<Described<'p>>> {
    let Some(describe) = table.dltensor_from_py_object_no_sync else { return Ok(None) };
    if refusals::expected_of(object, table) {
        return Ok(None);
    }
    if !write(object, describe, space) {
        return not_described(object).map(|()| None);
    }
    // One comparison for integers and floats, whose codes are lower.
    if space.descriptor.code() >= TypeCode::COMPLEX && !describe_again(object, describe, space)? {
        return Ok(None);
    }
    // A table that has written nothing, although it says so, is asked for a tensor to own.
    Ok(space.described(Flags::READ_ONLY))
}

#[inline(always)]
fn write(
    object: Borrowed<'_, '_, PyAny>,
    describe: DLPackDLTensorFromPyObjectNoSync,
    space: &mut DescriptorSpace,
) -> bool {
    // SAFETY: the object is of the type that published the table, and the interpreter attached (F1,
    // F5).
    unsafe { describe(object.as_ptr().cast(), space.descriptor.as_mut_ptr()) == 0 }
}

/// Checks whether the memory of a complex object holds its values, then describes the memory that
/// the object has after its Python code has run. `false` if the object must be imported.
#[cold]
fn describe_again(
    object: Borrowed<'_, '_, PyAny>,
    describe: DLPackDLTensorFromPyObjectNoSync,
    space: &mut DescriptorSpace,
) -> Result<bool> {
    if !may_be_conjugated(space.descriptor.code()) {
        return Ok(true);
    }
    if !resolved(object, Forgotten::space(space))? {
        return Ok(false);
    }
    let is_written = write(object, describe, space);
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

/// Whether a tensor's memory holds the values of its object: PyTorch conjugates lazily, and its
/// table exports the memory without the conjugation. Only complex tensors are checked. An object
/// without the method (`false`) is imported by `__dlpack__`.
#[cold]
fn resolved(object: Borrowed<'_, '_, PyAny>, _: Forgotten<'_>) -> Result<bool> {
    match is_conjugated(object) {
        Ok(false) => Ok(true),
        Ok(true) => Err(Error::buffer(CONJUGATED)),
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

/// The current stream of the table of an object's type.
#[cold]
pub(crate) fn current_stream(
    object: Borrowed<'_, '_, PyAny>,
    table: &DLPackExchangeAPI,
    device: Device,
) -> Result<Stream> {
    let Some(current_work_stream) = table.current_work_stream else { return Ok(Stream::DEFAULT) };
    // Some leave it as it is where they mean the default stream.
    let mut handle = ptr::null_mut();
    let kind = DLDeviceType(device.kind.0);
    // SAFETY: a callback of a type's own table, a place for the answer, and attached (F1, F5).
    let status = unsafe { current_work_stream(kind, device.id, &raw mut handle) };
    if status != 0 {
        return Err(refusals::failure(object));
    }
    // SAFETY: the producer's own current stream (SAFETY.md, T11).
    Ok(unsafe { Stream::from_handle(handle) })
}
