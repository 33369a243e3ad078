//! Drops handles that other handles own, in a loop in place of recursion.
//! Invariant: a queued handle is dropped before the call that queued the first one returns.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use super::header::{self, Destroy, Header};
use super::{Handle, Unstrided};

type Queue = RefCell<Vec<Handle>>;

thread_local! {
    /// The queue of the outermost `release_last` that this thread is in.
    static QUEUE: Cell<Option<NonNull<Queue>>> = const { Cell::new(None) };
}

/// Drops a handle that the owner of another handle held.
#[inline]
pub(crate) fn release(handle: Handle) {
    if handle.is_last() { release_last(handle) } else { drop(handle) }
}

/// Drops a handle and frees its memory. A nested call only queues the handle, so that a chain of
/// handles uses no more stack than two of them.
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

/// An owner that holds a handle. When the owner is dropped, the loop above drops the handle.
pub(crate) trait Nests: Send + 'static {
    fn into_handle(self) -> Handle;
}

impl Nests for Handle {
    fn into_handle(self) -> Handle {
        self
    }
}

impl Nests for Unstrided {
    fn into_handle(self) -> Handle {
        self.0
    }
}

impl<O: 'static> Destroy<O> {
    /// Releases the handle in the owner without recursion, if the owner's type is `P`.
    #[inline]
    pub(crate) fn nested<P: Nests>() -> Option<Self> {
        let is_same = TypeId::of::<O>() == TypeId::of::<P>();
        // SAFETY: of an owner of type `P`, which is `O`; it reads the owner once (R3).
        is_same.then(|| unsafe { Self::by(destroy_nested::<P>) })
    }
}

/// # Safety
///
/// `header` was made for an owner of type `O`, is owned by the caller, and is not used again.
unsafe fn destroy_nested<O: Nests>(header: NonNull<Header>) {
    // SAFETY: the caller's duty.
    let owner = unsafe { header::read_owner::<O>(header) };
    release(owner.into_handle());
}
