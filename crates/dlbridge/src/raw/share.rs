//! One tensor's memory exported again, kept alive by the first.
//! Deciding who may share does not belong here.
//! Invariant: R4: what two tensors can reach, neither holds exclusively.

use std::sync::Arc;

use super::Handle;
use crate::{Access, Flags};

/// Exports the memory of the handle in `owner` again.
pub(crate) fn share<O: Send + Sync + 'static>(owner: Arc<O>, handle: fn(&O) -> &Handle) -> Handle {
    let this = Arc::clone(&owner);
    let parts = handle(&this).parts();
    // The new tensor is not a copy made for its consumer, whatever the first one was.
    let flags = parts.flags - Flags::IS_COPIED;
    let (access, flags) = match parts.access {
        Access::Shared => (Access::Shared, flags),
        Access::Exclusive | Access::Frozen => (Access::Frozen, flags | Flags::READ_ONLY),
    };
    // SAFETY: the `Arc` keeps the handle, and so its memory, alive. While there is an `Arc`, the
    // handle is only borrowed immutably, so that memory which was exclusive is not written (R2,
    // R4).
    let shared = unsafe { Handle::share(owner, parts, access, flags) };
    shared.expect("nothing in it fails").beside(handle(&this))
}
