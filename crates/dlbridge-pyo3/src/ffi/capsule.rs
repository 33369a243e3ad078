//! DLPack capsules, and the tensors in them: made, consumed, and kept.
//! The names belong to `dlbridge::protocol::capsule`, calling `__dlpack__` to `import::dlpack`.
//! Invariant: a tensor is owned by its capsule while the capsule has the unused name, and by the
//! consumer that renamed it afterwards. Only this file renames a capsule.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use dlbridge::ffi::{KeepAlive, into_keeper, try_from_raw_bound};
use dlbridge::protocol::capsule::{CONSUMED, Content, expected};
use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned};
use dlbridge::{ManagedTensor, Tensor};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3::{Borrowed, ffi};

use super::borrow::give;
use super::versions::with_critical_section;
use crate::error::error_of;
use crate::interpreter::undisturbed;
use crate::release;
use crate::{Error, Result};

/// The name of a capsule that keeps memory and is not to be consumed.
const KEEPER: &CStr = c"dlbridge_memory";

/// The names of the capsules that NumPy keeps as the base of an array from `from_dlpack`. They own
/// the tensor, and no consumer accepts them.
const NUMPY_VERSIONED: &CStr = c"numpy_dltensor_versioned";
const NUMPY_LEGACY: &CStr = c"numpy_dltensor";

/// A capsule that owns a versioned tensor.
pub(crate) fn versioned(py: Python<'_>, tensor: Tensor) -> Result<Bound<'_, PyAny>> {
    // SAFETY: exported in this call, and owned by it (R3).
    unsafe { unused(py, give(py, tensor)?.into_raw()) }
}

/// A capsule that consumers do not accept. It keeps a tensor's memory alive.
#[inline]
pub(crate) fn keeper(py: Python<'_>, tensor: Tensor) -> Result<Bound<'_, PyAny>> {
    // Memory of Rust is released without running Python code.
    let release = if dlbridge::ffi::is_foreign(&tensor) { release_foreign } else { release_kept };
    let tensor = into_keeper(give(py, tensor)?);
    // SAFETY: exported in this call, and owned by it (R3).
    let keeper = unsafe { owning(py, tensor, KEEPER, release) }?;
    // The destructor would compare the name to get the pointer: 24 of 1,220 instructions of a new array.
    // SAFETY: attached; a capsule, made just now (F1).
    let set = unsafe { ffi::PyCapsule_SetContext(keeper.as_ptr(), tensor.cast()) };
    debug_assert_eq!(set, 0, "a valid capsule has a context");
    Ok(keeper)
}

/// A capsule that owns a legacy tensor.
pub(crate) fn legacy(py: Python<'_>, tensor: Tensor) -> Result<Bound<'_, PyAny>> {
    // SAFETY: exported in this call, and owned by it (R3).
    unsafe { unused(py, give(py, tensor)?.into_raw_legacy()?) }
}

/// # Safety
///
/// `tensor` is valid, and the caller passes its ownership.
unsafe fn unused<A: ManagedTensor>(py: Python<'_>, tensor: *mut A) -> Result<Bound<'_, PyAny>> {
    // SAFETY: the caller's duty; `release` releases what has this name.
    unsafe { owning(py, tensor, A::UNUSED, release::<A>) }
}

/// # Safety
///
/// `tensor` is valid, and the caller passes its ownership; `release` releases it, under this name.
#[inline]
unsafe fn owning<'py, A: ManagedTensor>(
    py: Python<'py>,
    tensor: *mut A,
    name: &'static CStr,
    release: ffi::PyCapsule_Destructor,
) -> Result<Bound<'py, PyAny>> {
    // SAFETY: not null, and the destructor is made for the pointer and the name (the caller's duty).
    unsafe { make(py, tensor.cast(), name, Some(release)) }.map_err(|error| {
        // SAFETY: no capsule took it (R3).
        unsafe { release_rejected(py, tensor) };
        error.into()
    })
}

/// Releases the tensor of a capsule that was not consumed.
unsafe extern "C" fn release<A: ManagedTensor>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls the destructor with its capsule (F1).
    let Some(tensor) = (unsafe { named(capsule, A::UNUSED) }) else { return };
    // SAFETY: attached to the interpreter, as every destructor is (F1).
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the unused capsule owned the tensor, and is being freed (F4).
    unsafe { release_rejected(py, tensor.cast::<A>().as_ptr()) };
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
    let tensor = unsafe { ffi::PyCapsule_GetContext(capsule) };
    // SAFETY: the keeper owned the tensor, and is being freed (F4).
    unsafe { dlbridge::ffi::release_raw(tensor.cast::<DLManagedTensorVersioned>()) };
}

/// Keeps the memory of an array's base alive, if the base is an export of this library.
pub(crate) fn keep(base: Borrowed<'_, '_, PyAny>) -> Option<KeepAlive> {
    for name in [NUMPY_VERSIONED, KEEPER] {
        if let Some(tensor) = content(base, name) {
            // SAFETY: a tensor of this ABI, which the capsule owns as long as it lives (F4).
            return unsafe {
                KeepAlive::of_raw(tensor.cast::<DLManagedTensorVersioned>().as_ptr())
            };
        }
    }
    let tensor = content(base, NUMPY_LEGACY)?;
    // SAFETY: the same.
    unsafe { KeepAlive::of_raw(tensor.cast::<DLManagedTensor>().as_ptr()) }
}

/// Imports the tensor of a capsule, and renames the capsule. If the tensor is rejected, the capsule
/// is not renamed, and its destructor still owns the tensor.
#[inline]
pub(crate) fn take(capsule: Borrowed<'_, '_, PyAny>) -> Result<Tensor> {
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
    let tensor = unsafe { try_adopt(tensor.cast::<A>()) }?;
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
    Error::from(error_of::<PyTypeError>(expected(&found)))
}

/// Imports a producer's tensor as [`Tensor::from_raw`] does. Its deleter, which may need the
/// interpreter (NumPy's does), is called by the rules of `release`.
///
/// # Safety
///
/// As for [`Tensor::from_raw`].
#[inline(always)]
pub(crate) unsafe fn adopt(
    py: Python<'_>,
    tensor: *mut DLManagedTensorVersioned,
) -> Result<Tensor> {
    // SAFETY: the caller's duty.
    unsafe { try_adopt(tensor) }.inspect_err(|_| {
        // SAFETY: the caller gave it up, and validation rejects it (R3).
        unsafe { release_rejected(py, tensor) };
    })
}

/// Calls the deleter of a tensor that was not imported. It may be Python code, or leave an exception.
///
/// # Safety
///
/// `tensor` is null or a tensor whose ownership the caller passes on.
#[cold]
pub(super) unsafe fn release_rejected<A: ManagedTensor>(py: Python<'_>, tensor: *mut A) {
    // SAFETY: the caller's duty.
    undisturbed(py, || unsafe { dlbridge::ffi::release_raw(tensor) });
}

/// Like [`adopt`], but the caller keeps a tensor that is rejected.
///
/// # Safety
///
/// As for [`Tensor::from_raw`].
#[inline(always)]
pub(crate) unsafe fn try_adopt<A: ManagedTensor>(tensor: *mut A) -> Result<Tensor> {
    // SAFETY: the caller's duty.
    Ok(unsafe { try_from_raw_bound(tensor, release::binding) }?)
}

/// A capsule of a pointer.
///
/// # Safety
///
/// The pointer is not null, and the destructor is made for it and for the name.
pub(crate) unsafe fn make<'py>(
    py: Python<'py>,
    pointer: *mut c_void,
    name: &'static CStr,
    destructor: Option<ffi::PyCapsule_Destructor>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the caller's duty; the name is static (F2).
    let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), destructor) };
    // SAFETY: a new reference, or null with an exception set (F3).
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// Whether an object is a capsule of this name.
#[inline]
fn has_name(object: Borrowed<'_, '_, PyAny>, name: &CStr) -> bool {
    // SAFETY: any object may be asked; no exception is set (F1).
    unsafe { ffi::PyCapsule_IsValid(object.as_ptr(), name.as_ptr()) == 1 }
}

/// The pointer of an object that is a capsule of this name.
#[inline]
pub(crate) fn content(object: Borrowed<'_, '_, PyAny>, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: attached, and an object (F1).
    unsafe { named(object.as_ptr(), name) }
}

/// The pointer of an object that is a capsule of this name.
///
/// # Safety
///
/// Attached, and an object.
#[inline]
pub(crate) unsafe fn named(object: *mut ffi::PyObject, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: any object may be asked; no exception is set (F1).
    if unsafe { ffi::PyCapsule_IsValid(object, name.as_ptr()) } != 1 {
        return None;
    }
    // SAFETY: a valid capsule of this name (F4).
    NonNull::new(unsafe { ffi::PyCapsule_GetPointer(object, name.as_ptr()) })
}
