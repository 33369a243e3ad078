//! Imports the tensor of a DLPack capsule, once.
//! Exporting one belongs to `ffi::capsule`, the names to `dlbridge::protocol::capsule`.
//! Invariant: a capsule owns its tensor while it has an unused name; the code that renamed it owns
//! the tensor afterwards.

use std::ffi::CStr;

use dlbridge::ffi::KeepAlive;
use dlbridge::protocol::capsule::{CONSUMED, Content, expected};
use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned};
use dlbridge::{ManagedTensor, Tensor};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3::{Borrowed, ffi};

use crate::ffi::capsule::KEEPER;
use crate::ffi::versions::with_critical_section;
use crate::{Error, Result, release};

/// The names of the capsules that NumPy keeps as the base of an array from `from_dlpack`. They own
/// the tensor, and no consumer accepts them.
const NUMPY_VERSIONED: &CStr = c"numpy_dltensor_versioned";
const NUMPY_LEGACY: &CStr = c"numpy_dltensor";

/// Keeps the memory of an array's base alive, if the base is an export of this library.
pub(super) fn keep(base: Borrowed<'_, '_, PyAny>) -> Option<KeepAlive> {
    for name in [NUMPY_VERSIONED, KEEPER] {
        if has_name(base, name) {
            // SAFETY: a capsule of this name (F4).
            let tensor = unsafe { ffi::PyCapsule_GetPointer(base.as_ptr(), name.as_ptr()) };
            // SAFETY: a tensor of this ABI, which the capsule owns as long as it lives (F4).
            return unsafe { KeepAlive::of_raw(tensor.cast::<DLManagedTensorVersioned>()) };
        }
    }
    if !has_name(base, NUMPY_LEGACY) {
        return None;
    }
    // SAFETY: a capsule of this name (F4).
    let tensor = unsafe { ffi::PyCapsule_GetPointer(base.as_ptr(), NUMPY_LEGACY.as_ptr()) };
    // SAFETY: a tensor of this ABI, which the capsule owns as long as it lives (F4).
    unsafe { KeepAlive::of_raw(tensor.cast::<DLManagedTensor>()) }
}

/// Whether `capsule` is a capsule of this name.
fn has_name(capsule: Borrowed<'_, '_, PyAny>, name: &CStr) -> bool {
    // SAFETY: any object may be asked; no exception is set (F1).
    unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1 }
}

/// Imports the tensor of a capsule, and renames the capsule. If the tensor is rejected, the capsule
/// is not renamed, and its destructor still owns the tensor.
#[inline]
pub(super) fn take(capsule: Borrowed<'_, '_, PyAny>) -> Result<Tensor> {
    // From here on no Python code runs that could consume the capsule.
    release::prepare();
    // Without a GIL, two threads could find the same capsule unused.
    with_critical_section(&capsule, || match Content::of(|name| has_name(capsule, name)) {
        Some(Content::Versioned) => take_as::<DLManagedTensorVersioned>(capsule),
        Some(Content::Legacy) => take_as::<DLManagedTensor>(capsule),
        Some(Content::Consumed) => Err(Error::buffer(CONSUMED)),
        None => Err(refusal(capsule)),
    })
}

#[inline]
fn take_as<A: ManagedTensor>(capsule: Borrowed<'_, '_, PyAny>) -> Result<Tensor> {
    // SAFETY: a capsule of this name (checked by `take`; F4).
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), A::UNUSED.as_ptr()) };
    // The check comes before the renaming, so that a refused tensor stays the capsule's.
    // SAFETY: an unused capsule of this name owns a tensor of this ABI (F4), whose producer is
    // trusted (T1 to T9).
    let tensor = unsafe { release::try_adopt(tensor.cast::<A>()) }?;
    // SAFETY: still a valid capsule; the name is static (F4).
    let renamed = unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), A::USED.as_ptr()) };
    debug_assert_eq!(renamed, 0, "a valid capsule can be renamed");
    Ok(tensor)
}

#[cold]
fn refusal(object: Borrowed<'_, '_, PyAny>) -> Error {
    let found = match object.cast::<PyCapsule>() {
        Ok(capsule) => match capsule.name() {
            // SAFETY: read at once, while the capsule keeps its name (F4).
            Ok(Some(name)) => format!("a capsule named {:?}", unsafe { name.as_cstr() }),
            _ => "a capsule without a name".to_owned(),
        },
        Err(_) => object.get_type().to_string(),
    };
    Error::Python(PyTypeError::new_err(expected(&found)))
}
