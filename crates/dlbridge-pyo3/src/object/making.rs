//! How an object of the class is made: as PyO3 makes it, by a shorter way.
//! What the object can do belongs to the class itself.
//! Invariant: the short way is taken only if objects made by PyO3 have been found to be what it
//! makes: a head, and the contents right behind it.
//!
//! PyO3 looks the class up, and calls `object.__new__` with a tuple of no arguments, which calls the
//! class's allocator: 80 instructions more.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::prelude::*;
use pyo3::{PyTypeInfo, ffi, intern};

use super::TensorObject;
use crate::release;

/// The class, if its objects may be made the short way.
static CLASS: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(ptr::null_mut());

/// Where the contents stand in an object.
const CONTENTS: usize = size_of::<ffi::PyObject>();

/// Makes an object.
#[inline]
pub(super) fn make(py: Python<'_>, contents: TensorObject) -> PyResult<Bound<'_, TensorObject>> {
    release::drain(py);
    let class = CLASS.load(Ordering::Relaxed);
    if class.is_null() {
        return make_and_look(py, contents);
    }
    // SAFETY: attached; the class is never freed (F1).
    let object = unsafe { ffi::PyType_GenericAlloc(class, 0) };
    // SAFETY: a new reference, or null with an exception set (F3).
    let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
    // SAFETY: within the object, as `is_head_and_contents` found (F5).
    let place = unsafe { object.as_ptr().byte_add(CONTENTS) };
    // SAFETY: nobody else has the object, and nothing is there yet (F5).
    unsafe { place.cast::<TensorObject>().write(contents) };
    // SAFETY: of this very class, and complete (F5).
    Ok(unsafe { object.cast_into_unchecked() })
}

/// Makes an object by PyO3, and looks whether the next ones may be made without.
#[cold]
fn make_and_look(py: Python<'_>, contents: TensorObject) -> PyResult<Bound<'_, TensorObject>> {
    let object = Bound::new(py, contents)?;
    if is_head_and_contents(&object).unwrap_or(false) {
        // A class of PyO3 lives as long as the program.
        CLASS.store(TensorObject::type_object_raw(py), Ordering::Relaxed);
    }
    Ok(object)
}

/// Whether an object is nothing else, and comes from the allocator that most classes have.
fn is_head_and_contents(object: &Bound<'_, TensorObject>) -> PyResult<bool> {
    let class = object.get_type();
    let size: usize = class.getattr(intern!(object.py(), "__basicsize__"))?.extract()?;
    let place = ptr::from_ref(object.get()).addr() - object.as_ptr().addr();
    // SAFETY: a type, and a slot that every version has (F1).
    let allocate = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_alloc) };
    Ok(place == CONTENTS
        && size == CONTENTS + size_of::<TensorObject>()
        && allocate == ffi::PyType_GenericAlloc as *mut c_void)
}
