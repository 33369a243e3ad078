//! Destroys headers whose owners may own other headers: at once up to a depth, in a loop beyond it.
//! Invariant: a header that waits is destroyed before the call that it waits under returns.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::raw::unwind::{Panic, catch};

/// The depth up to which a header is destroyed at once. The drop of an owner may wait for the end of a
/// tensor that it drops itself, so a release must not be put off without need.
const DEPTH: u32 = 16;

/// A header without handles, and the function that destroys it.
struct Released(NonNull<u8>, unsafe fn(NonNull<u8>));

impl Released {
    fn destroy(self) {
        // SAFETY: the duty of the caller of `in_turn`, which made this; called once (R3).
        unsafe { (self.1)(self.0) };
    }
}

/// The releases that a thread is in. A coroutine (a greenlet of Python) may leave one and come back when the releases
/// around it have ended, so they are counted, and none has a place on the stack for the others. Without a destructor,
/// a thread that ends has them to its last moment. While [`DEPTH`] releases are left, others wait for one of them.
struct Releases {
    depth: Cell<u32>,
    waiting: Cell<ManuallyDrop<Vec<Released>>>,
    /// The last panic of an owner. It is resumed when all is released.
    panic: Cell<Option<Panic>>,
}

thread_local! {
    static RELEASES: Releases = const {
        Releases {
            depth: Cell::new(0),
            waiting: Cell::new(ManuallyDrop::new(Vec::new())),
            panic: Cell::new(None),
        }
    };
}

/// Destroys a header, and those that wait meanwhile: a chain uses no more stack than [`DEPTH`] of them.
/// Only the outermost call unwinds, by the panic of an owner.
///
/// # Safety
///
/// `destroy` may be called with this header, on this thread, once.
pub(super) unsafe fn in_turn(header: NonNull<u8>, destroy: unsafe fn(NonNull<u8>)) {
    let released = Released(header, destroy);
    if RELEASES.with(|releases| !releases.begin()) {
        return RELEASES.with(|releases| releases.put_off(released));
    }
    let mut next = Some(released);
    while let Some(released) = next {
        if let Err(panic) = catch(|| released.destroy()) {
            RELEASES.with(|releases| releases.panic.set(Some(panic)));
        }
        next = RELEASES.with(Releases::next);
    }
    if let Some(panic) = RELEASES.with(Releases::end) {
        panic.resume();
    }
}

impl Releases {
    /// Whether a header may be destroyed at once.
    fn begin(&self) -> bool {
        let depth = self.depth.get();
        self.depth.set((depth + 1).min(DEPTH));
        depth < DEPTH
    }

    fn put_off(&self, released: Released) {
        let mut waiting = ManuallyDrop::into_inner(self.waiting.take());
        waiting.push(released);
        self.waiting.set(ManuallyDrop::new(waiting));
    }

    fn next(&self) -> Option<Released> {
        let mut waiting = ManuallyDrop::into_inner(self.waiting.take());
        let next = waiting.pop();
        if next.is_some() {
            self.waiting.set(ManuallyDrop::new(waiting));
        }
        next
    }

    /// The panic to resume, at the end of the outermost release.
    fn end(&self) -> Option<Panic> {
        let depth = self.depth.get().saturating_sub(1);
        self.depth.set(depth);
        match depth {
            0 => self.panic.take(),
            _ => None,
        }
    }
}
