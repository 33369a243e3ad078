//! DLPack capsules: their names, taking a tensor out once, putting one in.
//! Asking a producer for one does not belong here (see `import`).
//! Invariant: a tensor is owned by its capsule while the capsule has the unused name, and by
//! whoever renamed it afterwards.

use std::ffi::CStr;
use std::ptr;

use dlbridge::Tensor;
use dlbridge::ffi::Keep;
use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::PyCapsule;
use pyo3::{Borrowed, ffi};

use crate::release::{self, undisturbed};
use crate::{Error, Result};

/// One of the two ABIs, as capsules carry it.
pub(crate) trait Abi: Sized {
    const NAME: &'static CStr;
    const USED_NAME: &'static CStr;

    /// # Safety
    ///
    /// As for [`Tensor::try_from_raw`].
    unsafe fn try_import(tensor: *mut Self) -> std::result::Result<Tensor, dlbridge::Error>;

    /// # Safety
    ///
    /// As for [`Tensor::release_raw`].
    unsafe fn release(tensor: *mut Self);
}

impl Abi for DLManagedTensorVersioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    const USED_NAME: &'static CStr = c"used_dltensor_versioned";

    unsafe fn try_import(tensor: *mut Self) -> std::result::Result<Tensor, dlbridge::Error> {
        // SAFETY: the caller's duty.
        unsafe { release::try_adopt(tensor) }
    }

    #[inline]
    unsafe fn release(tensor: *mut Self) {
        // SAFETY: the caller's duty.
        unsafe { Tensor::release_raw(tensor) };
    }
}

impl Abi for DLManagedTensor {
    const NAME: &'static CStr = c"dltensor";
    const USED_NAME: &'static CStr = c"used_dltensor";

    unsafe fn try_import(tensor: *mut Self) -> std::result::Result<Tensor, dlbridge::Error> {
        // SAFETY: the caller's duty.
        unsafe { release::try_adopt_legacy(tensor) }
    }

    #[inline]
    unsafe fn release(tensor: *mut Self) {
        // SAFETY: the caller's duty.
        unsafe { Tensor::release_raw(tensor) };
    }
}

/// The name of a capsule that keeps memory and is not to be consumed.
const KEEPER: &CStr = c"dlbridge_memory";

/// The names of the capsules that NumPy keeps as the base of an array from `from_dlpack`. They own
/// the tensor, which nothing consumes any more.
const NUMPY_VERSIONED: &CStr = c"numpy_dltensor_versioned";
const NUMPY_LEGACY: &CStr = c"numpy_dltensor";

/// Keeps the memory that an array's base keeps, if that is an export of this library.
pub(crate) fn keep(base: Borrowed<'_, '_, PyAny>) -> Option<Keep> {
    for name in [NUMPY_VERSIONED, KEEPER] {
        if has_name(base, name) {
            // SAFETY: a capsule of this name (F4).
            let tensor = unsafe { ffi::PyCapsule_GetPointer(base.as_ptr(), name.as_ptr()) };
            // SAFETY: a tensor of this ABI, which the capsule owns as long as it lives (F4).
            return unsafe { Keep::of_raw(tensor.cast::<DLManagedTensorVersioned>()) };
        }
    }
    if !has_name(base, NUMPY_LEGACY) {
        return None;
    }
    // SAFETY: a capsule of this name (F4).
    let tensor = unsafe { ffi::PyCapsule_GetPointer(base.as_ptr(), NUMPY_LEGACY.as_ptr()) };
    // SAFETY: a tensor of this ABI, which the capsule owns as long as it lives (F4).
    unsafe { Keep::of_raw(tensor.cast::<DLManagedTensor>()) }
}

/// Whether `capsule` is a capsule of this very name.
fn has_name(capsule: Borrowed<'_, '_, PyAny>, name: &CStr) -> bool {
    // SAFETY: any object may be asked; no exception is set (F1).
    unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1 }
}

/// Takes the tensor out of a capsule, which is renamed to say so. A capsule whose tensor the gate
/// refuses is left as it was: its destructor still owns the tensor.
#[inline]
pub(crate) fn take(capsule: Borrowed<'_, '_, PyAny>) -> Result<Tensor> {
    // Without a global lock, two threads could find the same capsule unused.
    with_critical_section(&capsule, || {
        if has_name(capsule, DLManagedTensorVersioned::NAME) {
            take_as::<DLManagedTensorVersioned>(capsule)
        } else if has_name(capsule, DLManagedTensor::NAME) {
            take_as::<DLManagedTensor>(capsule)
        } else {
            Err(refusal(capsule))
        }
    })
}

#[inline]
fn take_as<A: Abi>(capsule: Borrowed<'_, '_, PyAny>) -> Result<Tensor> {
    // SAFETY: a capsule of this name (checked by `take`; F4).
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), A::NAME.as_ptr()) };
    // The check comes before the renaming, so that a refused tensor stays the capsule's.
    // SAFETY: an unused capsule of this name owns a tensor of this ABI (F4), whose producer is
    // trusted (T1 to T9).
    let tensor = unsafe { A::try_import(tensor.cast()) }?;
    // SAFETY: still a valid capsule; the name is static (F4).
    let renamed = unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), A::USED_NAME.as_ptr()) };
    debug_assert_eq!(renamed, 0, "a valid capsule can be renamed");
    Ok(tensor)
}

#[cold]
fn refusal(object: Borrowed<'_, '_, PyAny>) -> Error {
    let used = [DLManagedTensorVersioned::USED_NAME, DLManagedTensor::USED_NAME];
    if used.into_iter().any(|name| has_name(object, name)) {
        return Error::buffer("capsule: its tensor was consumed already, wanted an unused one");
    }
    let found = match object.cast::<PyCapsule>() {
        Ok(capsule) => match capsule.name() {
            // SAFETY: read at once, while the capsule keeps its name (F4).
            Ok(Some(name)) => format!("a capsule named {:?}", unsafe { name.as_cstr() }),
            _ => "a capsule without a name".to_owned(),
        },
        Err(_) => format!("{}", object.get_type()),
    };
    let message =
        format!("capsule: found {found}, wanted one named \"dltensor_versioned\" or \"dltensor\"");
    Error::Python(PyTypeError::new_err(message))
}

/// A capsule that owns a tensor in the ABI of DLPack 1.x.
pub(crate) fn versioned(py: Python<'_>, tensor: Tensor) -> Result<Bound<'_, PyAny>> {
    // SAFETY: given away by the tensor just now (R3).
    unsafe { unused(py, tensor.into_raw()) }
}

/// A capsule that nobody can consume. It keeps a tensor's memory as long as itself.
#[inline]
pub(crate) fn keeper(py: Python<'_>, tensor: Tensor) -> Result<Bound<'_, PyAny>> {
    // Memory of Rust is released without running Python code.
    let release = if tensor.is_foreign() { release_foreign } else { release_kept };
    // SAFETY: given away by the tensor just now (R3).
    unsafe { new(py, tensor.into_raw(), KEEPER, release) }
}

/// A capsule that owns a tensor in the ABI of DLPack before 1.0.
pub(crate) fn legacy(py: Python<'_>, tensor: Tensor) -> Result<Bound<'_, PyAny>> {
    // SAFETY: given away by the tensor just now (R3).
    unsafe { unused(py, tensor.into_raw_legacy()?) }
}

/// # Safety
///
/// `tensor` is valid and given away by the caller.
unsafe fn unused<A: Abi>(py: Python<'_>, tensor: *mut A) -> Result<Bound<'_, PyAny>> {
    // SAFETY: the caller's duty; `release` releases what has this name.
    unsafe { new(py, tensor, A::NAME, release::<A>) }
}

/// # Safety
///
/// `tensor` is valid and given away by the caller; `release` releases it, under this name.
#[inline]
unsafe fn new<'py, A: Abi>(
    py: Python<'py>,
    tensor: *mut A,
    name: &'static CStr,
    release: ffi::PyCapsule_Destructor,
) -> Result<Bound<'py, PyAny>> {
    // SAFETY: the pointer is not null, the name static, the destructor made for both (F2).
    let capsule = unsafe { ffi::PyCapsule_New(tensor.cast(), name.as_ptr(), Some(release)) };
    // SAFETY: a new reference, or null with an exception set (F3).
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.map_err(|error| {
        // SAFETY: no capsule took it (R3).
        unsafe { A::release(tensor) };
        error.into()
    })
}

/// Releases the tensor of a capsule that nobody consumed.
unsafe extern "C" fn release<A: Abi>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls the destructor with its capsule (F1).
    let tensor = unsafe { owned_by::<A>(capsule, A::NAME) };
    if tensor.is_null() {
        return;
    }
    // SAFETY: attached to the interpreter, as every destructor is (F1).
    let py = unsafe { Python::assume_attached() };
    // The owner may be a Python object of another library.
    // SAFETY: the unused capsule owned the tensor, and is going (F4).
    undisturbed(py, || unsafe { A::release(tensor) });
}

/// Releases the tensor of a keeper, which came from another library.
unsafe extern "C" fn release_foreign(capsule: *mut ffi::PyObject) {
    // SAFETY: attached to the interpreter, as every destructor is (F1).
    let py = unsafe { Python::assume_attached() };
    // SAFETY: Python calls the destructor with its capsule (F1).
    undisturbed(py, || unsafe { release_kept(capsule) });
}

/// Releases the tensor of a keeper.
unsafe extern "C" fn release_kept(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls the destructor with its capsule (F1).
    let tensor = unsafe { owned_by::<DLManagedTensorVersioned>(capsule, KEEPER) };
    // SAFETY: the keeper owned the tensor, and is going; or null (F4).
    unsafe { Tensor::release_raw(tensor) };
}

/// The tensor that a capsule owns if it has this name; otherwise null.
///
/// # Safety
///
/// Attached; `capsule` is a capsule, which owns a tensor of this ABI if it has this name.
#[inline]
unsafe fn owned_by<A: Abi>(capsule: *mut ffi::PyObject, name: &'static CStr) -> *mut A {
    // SAFETY: the caller's duty (F1).
    if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } != 1 {
        return ptr::null_mut();
    }
    // SAFETY: a valid capsule of this name (F4).
    unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) }.cast()
}
