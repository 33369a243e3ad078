//! Drops handles that other handles own: at once up to a depth, in a loop beyond it.
//! Invariant: a queued handle is dropped before the call that it was queued under returns.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use super::header::{self, Destroy, Header};
use super::{Handle, Unstrided};
use crate::raw::unwind::{Panic, catch};

/// The depth up to which a handle is dropped at once. The drop of an owner may wait for the end of a
/// tensor that it drops itself, so a release must not be put off without need.
const DEPTH: u32 = 16;

/// The nested releases of a thread.
#[derive(Default)]
struct Releases {
    depth: Cell<u32>,
    queue: RefCell<Vec<Handle>>,
    /// The last panic of an owner. It is resumed when all is released.
    panic: Cell<Option<Panic>>,
}

thread_local! {
    /// Those of the outermost `release_last` that this thread is in.
    static RELEASES: Cell<Option<NonNull<Releases>>> = const { Cell::new(None) };
}

/// Drops a handle that the owner of another handle held.
#[inline]
pub(crate) fn release(handle: Handle) {
    if handle.is_last() { release_last(handle) } else { drop(handle) }
}

/// Drops a handle and frees its memory. A chain of handles uses no more stack than [`DEPTH`] of them.
#[inline(never)]
fn release_last(handle: Handle) {
    if let Some(releases) = RELEASES.get() {
        // SAFETY: it stands in a call of this thread that has not returned (R2).
        return unsafe { releases.as_ref() }.release(handle);
    }
    let releases = Releases::default();
    RELEASES.set(Some(NonNull::from(&releases)));
    releases.release(handle);
    RELEASES.set(None);
    if let Some(panic) = releases.panic.take() {
        panic.resume();
    }
}

impl Releases {
    /// Drops a handle, and those that are queued meanwhile. It never unwinds.
    fn release(&self, handle: Handle) {
        let depth = self.depth.get();
        if depth == DEPTH {
            return self.queue.borrow_mut().push(handle);
        }
        self.depth.set(depth + 1);
        let mut next = Some(handle);
        while let Some(handle) = next {
            if let Err(panic) = catch(|| drop(handle)) {
                self.panic.set(Some(panic));
            }
            next = self.queue.borrow_mut().pop();
        }
        self.depth.set(depth);
    }
}

/// An owner that holds a handle. When the owner is dropped, [`release`] drops the handle.
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
