//! The one queue of releases: those that nest too deep wait for one around them, those that need another thread for that.
//! Invariant: a release runs once, or is leaked. One that nests too deep runs before the release that it waits for
//! returns. No thread waits here, and there is no lock, because one that another thread holds during a `fork` would stay
//! locked in the child.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::Handle;
use super::unwind::{Panic, catch};

/// The depth up to which releases run at once. The drop of an owner may wait for the end of a tensor that it drops
/// itself, so a release must not be put off without need.
const DEPTH: u32 = 16;

type Release = Box<dyn FnOnce()>;

/// The releases that a thread is in. A coroutine (a greenlet of Python) may leave one and come back when the releases
/// around it have ended, so they are counted, and none has a place on the stack for the others. Without a destructor,
/// a thread that ends has them to its last moment. While [`DEPTH`] releases are left, others wait for one of them.
struct Releases {
    depth: Cell<u32>,
    waiting: Cell<ManuallyDrop<Vec<Release>>>,
    /// The last panic of a release. It is resumed when all have run.
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

/// Releases a value by `now`, or by `later` at the end of one of the releases that this thread is in: a chain of values
/// that own each other uses no more stack than 16 of them. Only the outermost call unwinds, by the panic of a
/// release.
#[inline]
pub fn in_turn<T: 'static>(value: T, now: impl FnOnce(T), later: fn(T)) {
    let begins = RELEASES.with(|releases| {
        let depth = releases.depth.get();
        releases.depth.set((depth + 1).min(DEPTH));
        depth < DEPTH
    });
    if begins {
        let result = catch(|| now(value));
        RELEASES.with(|releases| releases.end(result));
    } else {
        put_off(Box::new(move || later(value)));
    }
}

/// [`in_turn`] of a header, compiled once for owners of all types.
pub(super) fn header_in_turn(header: NonNull<u8>, destroy: fn(NonNull<u8>)) {
    in_turn(header, destroy, destroy);
}

#[cold]
fn put_off(release: Release) {
    RELEASES.with(|releases| {
        let mut waiting = ManuallyDrop::into_inner(releases.waiting.take());
        waiting.push(release);
        releases.waiting.set(ManuallyDrop::new(waiting));
    });
}

impl Releases {
    #[inline]
    fn end(&self, result: Result<(), Panic>) {
        if let Err(panic) = result {
            self.panic.set(Some(panic));
        }
        if self.depth.get() == DEPTH {
            self.run_waiting();
        }
        // Decrement; do not restore a saved depth: a greenlet may have switched.
        let depth = self.depth.get().saturating_sub(1);
        self.depth.set(depth);
        if depth == 0 {
            if let Some(panic) = self.panic.take() {
                panic.resume();
            }
        }
    }

    /// Runs the releases that wait for one at the full depth, and those that begin to wait meanwhile.
    #[cold]
    fn run_waiting(&self) {
        while let Some(release) = self.next() {
            if let Err(panic) = catch(release) {
                self.panic.set(Some(panic));
            }
        }
    }

    fn next(&self) -> Option<Release> {
        let mut waiting = ManuallyDrop::into_inner(self.waiting.take());
        let next = waiting.pop();
        if next.is_some() {
            self.waiting.set(ManuallyDrop::new(waiting));
        }
        next
    }
}

/// A release that waits for a thread, and the one that was queued before it.
struct Node {
    release: Box<dyn FnOnce() + Send>,
    next: *mut Node,
}

/// The release that was queued last.
static QUEUE: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());

/// Queues a release for a thread that may run it. Which threads those are is the caller's to know.
pub fn queue_release(release: impl FnOnce() + Send + 'static) {
    let node = Box::into_raw(Box::new(Node { release: Box::new(release), next: ptr::null_mut() }));
    let mut next = QUEUE.load(Ordering::Relaxed);
    loop {
        // SAFETY: made just now, and no other thread has it before it is in the queue (R7).
        unsafe { (*node).next = next };
        match QUEUE.compare_exchange_weak(next, node, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => next = found,
        }
    }
}

/// Whether a release is queued.
#[inline]
#[must_use]
pub fn has_queued_releases() -> bool {
    !QUEUE.load(Ordering::Relaxed).is_null()
}

/// Runs the queued releases, the oldest first.
pub fn run_queued_releases() {
    let mut node = QUEUE.swap(ptr::null_mut(), Ordering::AcqRel);
    let mut taken = Vec::new();
    while !node.is_null() {
        // SAFETY: made by `queue_release`, and in this list alone (R7).
        let Node { release, next } = *unsafe { Box::from_raw(node) };
        taken.push(release);
        node = next;
    }
    taken.into_iter().rev().for_each(|release| release());
}

// A binding that imported a tensor decides when it is dropped.
// Invariant: R3: dropping a bound handle makes exactly one unbound tensor.

/// A producer's tensor without handles. Its drop calls the deleter.
pub struct DeferredDrop(Handle);

impl DeferredDrop {
    pub(crate) fn into_handle(self) -> Handle {
        self.0
    }
}

/// How a language binding drops the tensors that it imported.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Whether the deleter of a producer may be called now, on this thread.
    pub may_delete: fn() -> bool,
    /// Called where `may_delete` returns false, and for a tensor in a chain of exports: such releases can
    /// nest to any depth. It must not panic.
    pub release: fn(DeferredDrop),
}

/// The first binding that imported a tensor; null until then. A process has one runtime of a language.
static BINDING: AtomicPtr<Binding> = AtomicPtr::new(ptr::null_mut());

/// Keeps the first binding.
#[inline(always)]
pub(crate) fn keep(binding: fn() -> &'static Binding) {
    if BINDING.load(Ordering::Relaxed).is_null() {
        keep_first(binding);
    }
}

#[cold]
fn keep_first(binding: fn() -> &'static Binding) {
    let binding = ptr::from_ref(binding()).cast_mut();
    let (first, later) = (Ordering::Release, Ordering::Relaxed);
    // An error means that another thread was first.
    let _ = BINDING.compare_exchange(ptr::null_mut(), binding, first, later);
}

/// The first binding.
#[inline]
fn kept() -> Option<&'static Binding> {
    // SAFETY: null, or a reference to a binding that is never freed nor changed (F6).
    unsafe { BINDING.load(Ordering::Acquire).as_ref() }
}

/// Whether the deleter of a bound handle is called at once.
#[inline]
pub(super) fn may_delete() -> bool {
    kept().is_none_or(|binding| (binding.may_delete)())
}

/// Gives the binding a handle that is bound no longer.
#[cold]
pub(super) fn release(handle: Handle) {
    let tensor = DeferredDrop(handle);
    match kept() {
        Some(binding) => (binding.release)(tensor),
        None => drop(tensor),
    }
}
