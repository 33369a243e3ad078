//! One tensor's memory exported again, kept alive by the first.
//! Deciding who may share does not belong here.
//! Invariant: R4: what two tensors can reach, neither holds exclusively.

use std::sync::Arc;

use super::Handle;
use super::keeper::Keeper;
use crate::{Access, Flags, Tensor};

/// Exports the memory of a tensor again.
pub(crate) fn share(owner: Arc<Tensor>) -> Handle {
    let this = Arc::clone(&owner);
    let parts = this.0.parts();
    // The new tensor is not a copy made for its consumer, whatever the first one was.
    let flags = parts.flags - Flags::IS_COPIED;
    let (access, flags) = match parts.access {
        Access::Shared => (Access::Shared, flags),
        Access::Exclusive | Access::Frozen => (Access::Frozen, flags | Flags::READ_ONLY),
    };
    // A share of a share keeps what that one keeps.
    let shared = match this.0.keeper() {
        // SAFETY: the `Arc` keeps the handle, and so its memory, alive. While there is an `Arc`, the
        // handle is only borrowed immutably, so that memory which was exclusive is not written (R2,
        // R4).
        None => unsafe { Handle::share(owner, parts, access, flags) },
        // SAFETY: the same; it is an `Arc` of the same memory, which was not exclusive (R2, R4).
        Some(Keeper::Shared(first)) => unsafe { Handle::share(first, parts, access, flags) },
        // SAFETY: a handle of the same memory, which was not exclusive (R2, R4).
        Some(Keeper::Counted(first)) => unsafe { Handle::share(first, parts, access, flags) },
    };
    shared.expect("nothing in it fails").beside(&this.0)
}
