//! Releases handles that other handles own, in a loop instead of recursively.
//! What an owner is otherwise does not belong here (see `header`).
//! Invariant: a handle that is queued is dropped before the call that queued the first one returns.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use super::handle::{Handle, Unstrided};
use crate::{SharedTensor, Tensor};

type Queue = RefCell<Vec<Handle>>;

thread_local! {
    /// The queue of the outermost `release_last` that this thread is in.
    static QUEUE: Cell<Option<NonNull<Queue>>> = const { Cell::new(None) };
}

/// Drops a handle that another handle's owner held.
#[inline]
pub(crate) fn release(handle: Handle) {
    if handle.is_last() { release_last(handle) } else { drop(handle) }
}

/// Drops a handle and releases its memory. Within another call it only queues the handle, so that a
/// chain of handles takes no more of the stack than two of them.
#[inline(never)]
fn release_last(handle: Handle) {
    if let Some(queue) = QUEUE.get() {
        // SAFETY: it stands in a call of this thread that has not returned (R2).
        return unsafe { queue.as_ref() }.borrow_mut().push(handle);
    }
    let queue = Queue::default();
    QUEUE.set(Some(NonNull::from(&queue)));
    let (mut next, mut panic) = (Some(handle), None);
    while let Some(handle) = next {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(handle))) {
            // Dropping a second one could panic again.
            if let Some(second) = panic.replace(payload) {
                std::mem::forget(second);
            }
        }
        next = queue.borrow_mut().pop();
    }
    QUEUE.set(None);
    if let Some(payload) = panic {
        resume_unwind(payload);
    }
}

/// Whether an owner of this type is known to hold a handle. Known when it is compiled.
#[inline(always)]
pub(crate) fn holds_handle<O: 'static>() -> bool {
    let owner = TypeId::of::<O>();
    owner == TypeId::of::<Handle>()
        || owner == TypeId::of::<Unstrided>()
        || owner == TypeId::of::<Tensor>()
        || owner == TypeId::of::<SharedTensor>()
}

/// Drops an owner that holds a handle.
pub(crate) fn release_owner<O: 'static>(owner: O) {
    let mut owner = Some(owner);
    let owner: &mut dyn Any = &mut owner;
    let handle = if let Some(handle) = owner.downcast_mut::<Option<Handle>>() {
        handle.take()
    } else if let Some(handle) = owner.downcast_mut::<Option<Unstrided>>() {
        handle.take().map(|Unstrided(handle)| handle)
    } else if let Some(tensor) = owner.downcast_mut::<Option<Tensor>>() {
        tensor.take().map(|tensor| tensor.0)
    } else if let Some(tensor) = owner.downcast_mut::<Option<SharedTensor>>() {
        tensor.take().map(|tensor| Tensor::from(tensor).0)
    } else {
        None
    };
    if let Some(handle) = handle {
        release(handle);
    }
}
