//! Exports a tensor in a DLPack capsule.
//! Importing one belongs to `import::capsule`, the names to `dlbridge::protocol::capsule`.
//! Invariant: a tensor is owned by its capsule while the capsule has the unused name, and by the
//! consumer that renamed it afterwards.

use std::ffi::CStr;
use std::ptr;

use dlbridge::sys::DLManagedTensorVersioned;
use dlbridge::{ManagedTensor, Tensor};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::Result;
use crate::release::undisturbed;

/// The name of a capsule that keeps memory and is not to be consumed.
pub(crate) const KEEPER: &CStr = c"dlbridge_memory";

/// A capsule that owns a versioned tensor.
pub(crate) fn versioned(py: Python<'_>, tensor: Tensor) -> Result<Bound<'_, PyAny>> {
    // SAFETY: exported in this call, and owned by it (R3).
    unsafe { unused(py, tensor.into_raw()) }
}

/// A capsule that consumers do not accept. It keeps a tensor's memory alive.
#[inline]
pub(crate) fn keeper(py: Python<'_>, tensor: Tensor) -> Result<Bound<'_, PyAny>> {
    // Memory of Rust is released without running Python code.
    let release = if tensor.is_foreign() { release_foreign } else { release_kept };
    // SAFETY: exported in this call, and owned by it (R3).
    unsafe { new(py, tensor.into_raw(), KEEPER, release) }
}

/// A capsule that owns a legacy tensor.
pub(crate) fn legacy(py: Python<'_>, tensor: Tensor) -> Result<Bound<'_, PyAny>> {
    // SAFETY: exported in this call, and owned by it (R3).
    unsafe { unused(py, tensor.into_raw_legacy()?) }
}

/// # Safety
///
/// `tensor` is valid, and the caller passes its ownership.
unsafe fn unused<A: ManagedTensor>(py: Python<'_>, tensor: *mut A) -> Result<Bound<'_, PyAny>> {
    // SAFETY: the caller's duty; `release` releases what has this name.
    unsafe { new(py, tensor, A::UNUSED, release::<A>) }
}

/// # Safety
///
/// `tensor` is valid, and the caller passes its ownership; `release` releases it, under this name.
#[inline]
unsafe fn new<'py, A: ManagedTensor>(
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
        unsafe { Tensor::release_raw(tensor) };
        error.into()
    })
}

/// Releases the tensor of a capsule that was not consumed.
unsafe extern "C" fn release<A: ManagedTensor>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls the destructor with its capsule (F1).
    let tensor = unsafe { owned_by::<A>(capsule, A::UNUSED) };
    if tensor.is_null() {
        return;
    }
    // SAFETY: attached to the interpreter, as every destructor is (F1).
    let py = unsafe { Python::assume_attached() };
    // The owner may be a Python object of another library.
    // SAFETY: the unused capsule owned the tensor, and is being freed (F4).
    undisturbed(py, || unsafe { Tensor::release_raw(tensor) });
}

/// Releases the tensor of a keeper from another library.
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
    // SAFETY: the keeper owned the tensor, and is being freed; or null (F4).
    unsafe { Tensor::release_raw(tensor) };
}

/// The tensor that a capsule owns if it has this name; otherwise null.
///
/// # Safety
///
/// Attached; `capsule` is a capsule, which owns a tensor of this ABI if it has this name.
#[inline]
unsafe fn owned_by<A: ManagedTensor>(capsule: *mut ffi::PyObject, name: &'static CStr) -> *mut A {
    // SAFETY: the caller's duty (F1).
    if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } != 1 {
        return ptr::null_mut();
    }
    // SAFETY: a valid capsule of this name (F4).
    unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) }.cast()
}
