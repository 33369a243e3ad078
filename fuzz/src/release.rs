//! Calling deleters, as a consumer in C does.
//! Counting the calls does not belong here: the producers do.

use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned};

/// Calls the deleter of a descriptor of DLPack 1.x, if it has one.
pub(crate) fn delete(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: alive until its deleter is called.
    if let Some(deleter) = unsafe { (*managed).deleter } {
        // SAFETY: owned by the target, which forgets it.
        unsafe { deleter(managed) };
    }
}

/// Calls the deleter of a descriptor of DLPack before 1.0, if it has one.
pub(crate) fn delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: alive until its deleter is called.
    if let Some(deleter) = unsafe { (*managed).deleter } {
        // SAFETY: owned by the target, which forgets it.
        unsafe { deleter(managed) };
    }
}
