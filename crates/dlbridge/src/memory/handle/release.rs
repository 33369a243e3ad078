//! A binding that imported a tensor decides when it is dropped.
//! Invariant: R3: dropping a bound handle makes exactly one unbound tensor.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::Handle;

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

/// Passes a handle that is no longer bound to the binding.
#[cold]
pub(super) fn release(handle: Handle) {
    let tensor = DeferredDrop(handle);
    match kept() {
        Some(binding) => (binding.release)(tensor),
        None => drop(tensor),
    }
}
