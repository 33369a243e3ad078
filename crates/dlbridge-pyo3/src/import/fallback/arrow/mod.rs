//! Imports the values of an object with `__arrow_c_array__` or `__arrow_c_stream__` (the Arrow
//! PyCapsule interface).
//! What the structs describe belongs to `column`.
//! Invariant: a schema stays in its capsule; an array and a stream are moved out of their capsules
//! or stay there. So each is released once.

mod column;
mod extension;
mod stream;

use dlbridge::Tensor;
use pyo3::prelude::*;
use pyo3::{Borrowed, ffi, intern};

use crate::ffi::arrow::{ArrowArray, ArrowSchema, Owned, Releasable};
use crate::ffi::versions::with_critical_section;
use crate::release::Owner;
use crate::{Error, Result};
use column::Unparsed;
pub(super) use stream::{copy_stream, import_stream};

/// The method of an object with one array.
const ARRAY: &str = "__arrow_c_array__";

/// Imports the values of an object's `__arrow_c_array__`: numbers without nulls, read-only, since
/// arrays are immutable; `None` if it has none.
pub(super) fn import_arrow(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let py = object.py();
    let Some(method) = object.getattr_opt(intern!(py, ARRAY))? else {
        return Ok(None);
    };
    let answer = method.call0()?;
    let Ok((schema, array)) = answer.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        let found = answer.repr()?;
        let message = format!("{ARRAY}: expected a pair of capsules, found {found}");
        return Err(Error::buffer(message));
    };
    let schema_place = content::<ArrowSchema>(&schema)?;
    content::<ArrowArray>(&array)?;
    // SAFETY: a capsule of this name holds this struct, which is not freed while the capsule lives
    // (F4).
    let schema_struct = unsafe { &*schema_place };
    // SAFETY: valid, or released, as its producer promises (F8).
    let column = unsafe { Unparsed::read(ARRAY, schema_struct) }?.parse(py)?;
    // On a build without the GIL, two threads could move the same array.
    with_critical_section(&array, || {
        let place = content::<ArrowArray>(&array)?;
        // SAFETY: the same as for the schema.
        let found = unsafe { &*place };
        // SAFETY: the same.
        let memory = unsafe { column.memory(ARRAY, found) }?;
        // SAFETY: the capsule's struct, guarded from other threads (F4).
        let owner = Owner::new(unsafe { Owned::take(place) });
        // SAFETY: the values are there until the array is released (SAFETY.md, T3).
        unsafe { memory.tensor(owner) }.map(Some)
    })
}

/// The struct in a capsule of its name.
fn content<T: Releasable>(capsule: &Bound<'_, PyAny>) -> Result<*mut T> {
    let name = T::CAPSULE;
    // SAFETY: any object may be asked; no exception is set (F1).
    if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) } != 1 {
        let found = capsule.repr()?;
        return Err(Error::buffer(format!("capsule: expected one named {name:?}, found {found}")));
    }
    // SAFETY: a capsule of this name (F4).
    Ok(unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) }.cast())
}
