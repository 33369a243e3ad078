//! Calls deleters, as a C consumer does. The producers count the calls.

use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned};

/// Calls the deleter of a versioned descriptor, if it has one.
pub(crate) fn delete(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: alive until its deleter is called.
    if let Some(deleter) = unsafe { (*managed).deleter } {
        // SAFETY: owned by the target, which forgets it.
        unsafe { deleter(managed) };
    }
}

/// Calls the deleter of a legacy descriptor, if it has one.
pub(crate) fn delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: alive until its deleter is called.
    if let Some(deleter) = unsafe { (*managed).deleter } {
        // SAFETY: owned by the target, which forgets it.
        unsafe { deleter(managed) };
    }
}
