//! DLPack capsules: their names, importing a tensor from one once, exporting one.
//! Requesting one from a producer belongs to `import`.
//! Invariant: a capsule owns its tensor while it has the unused name; the code that renamed it owns
//! the tensor afterwards.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use dlbridge::protocol::capsule::{CONSUMED, Content, expected};
use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned};
use dlbridge::{ManagedTensor, Tensor};

use super::api::Pointer;
use super::attached::{Object, Python};
use crate::entry::contained;
use crate::error::{Error, Result};

/// Without a GIL, two threads could find the same capsule unused. Nothing that may run Python code
/// happens under the lock: the thread with the GIL may be waiting for it.
static TAKING: Mutex<()> = Mutex::new(());

fn has_name(capsule: &Object, name: &CStr) -> bool {
    // SAFETY: any object may be asked, on an attached thread; no exception is set (F1).
    unsafe { capsule.python.api.PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1 }
}

fn content(object: &Object) -> Option<Content> {
    Content::of(|name| has_name(object, name))
}

/// Whether an object is a capsule that holds a tensor, or held one.
pub(super) fn is_capsule(object: &Object) -> bool {
    content(object).is_some()
}

/// Imports the tensor of a capsule, which is renamed to say so. A capsule whose tensor is rejected
/// is left as it was: its destructor still owns the tensor.
pub(super) fn take(capsule: &Object) -> Result<Tensor> {
    let taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
    match content(capsule) {
        Some(Content::Versioned) => take_as::<DLManagedTensorVersioned>(capsule),
        Some(Content::Legacy) => take_as::<DLManagedTensor>(capsule),
        Some(Content::Consumed) => Err(Error::Unsupported(CONSUMED.to_owned())),
        None => {
            drop(taking);
            Err(refusal(capsule))
        }
    }
}

fn take_as<A: ManagedTensor>(capsule: &Object) -> Result<Tensor> {
    let (api, name) = (capsule.python.api, A::UNUSED.as_ptr());
    // SAFETY: a capsule of this name (checked by `take`), attached (F4).
    let tensor = unsafe { api.PyCapsule_GetPointer(capsule.as_ptr(), name) };
    // The check comes before the renaming, so that a refused tensor stays the capsule's.
    // SAFETY: an unused capsule of this name owns a tensor of this ABI (F4), whose producer is
    // trusted (T1 to T9).
    let tensor = unsafe { Tensor::from_raw(tensor.cast::<A>()) }?;
    // SAFETY: still a valid capsule; the name is static (F4).
    unsafe { api.PyCapsule_SetName(capsule.as_ptr(), A::USED.as_ptr()) };
    Ok(tensor)
}

#[cold]
fn refusal(object: &Object) -> Error {
    let found = object.kind().and_then(|kind| kind.text()).unwrap_or_default();
    Error::Unsupported(expected(&found))
}

/// A capsule that owns a tensor, versioned or legacy. The tensor is taken only when nothing can
/// fail any more; for a legacy capsule the caller has made sure of that by `ffi::check_legacy`.
pub(crate) fn new(
    python: Python,
    versioned: bool,
    take: impl FnOnce() -> Tensor,
) -> Result<Object> {
    if versioned {
        wrap(python, || Ok(take().into_raw()))
    } else {
        wrap(python, || take().into_raw_legacy())
    }
}

/// Makes the capsule first, over no tensor and without a destructor.
fn wrap<A: ManagedTensor>(
    python: Python,
    take: impl FnOnce() -> Result<*mut A, dlbridge::Error>,
) -> Result<Object> {
    let api = python.api;
    let nothing = NonNull::<A>::dangling().as_ptr();
    // SAFETY: the pointer is not null, the name static (F2).
    let capsule = unsafe { api.PyCapsule_New(nothing.cast(), A::UNUSED.as_ptr(), None) };
    // SAFETY: a new reference or null (F3).
    let capsule = unsafe { python.own(capsule) }?;
    let tensor = take()?;
    // SAFETY: a capsule that no other code has seen; the pointer is not null (F4).
    unsafe { api.PyCapsule_SetPointer(capsule.as_ptr(), tensor.cast()) };
    // SAFETY: the same; the destructor is made for this ABI (F4).
    unsafe { api.PyCapsule_SetDestructor(capsule.as_ptr(), Some(release::<A>)) };
    Ok(capsule)
}

/// Releases the tensor of a capsule that was not consumed.
unsafe extern "C" fn release<A: ManagedTensor>(capsule: Pointer) {
    contained((), || {
        // SAFETY: Python calls destructors of capsules (F1).
        let Some(python) = (unsafe { Python::in_callback() }) else { return };
        // SAFETY: Python calls the destructor with its capsule (F1).
        if unsafe { python.api.PyCapsule_IsValid(capsule, A::UNUSED.as_ptr()) } != 1 {
            return;
        }
        // SAFETY: a valid capsule of this name (F4).
        let tensor = unsafe { python.api.PyCapsule_GetPointer(capsule, A::UNUSED.as_ptr()) };
        // The owner may run Python code.
        // SAFETY: the unused capsule owned the tensor, and is being freed (F4).
        python.undisturbed(|| unsafe { dlbridge::ffi::release_raw(tensor.cast::<A>()) });
    });
}
