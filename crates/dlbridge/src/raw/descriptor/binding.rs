//! Dropping a handle: at once, or when the language binding that took the tensor says so.
//! What a binding says does not belong here (see `release` of `dlbridge-pyo3`).
//! Invariant: R3: a bound handle becomes one unbound tensor when it is dropped, and nothing else.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned};

use super::Handle;
use super::foreign::Foreign;
use super::header;
use super::marks::Root;
use crate::{Error, Tensor};

/// How a language binding drops the tensors of the producers that it met.
///
/// For language bindings: no part of the API that users rely on.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Whether a producer's deleter may be called here and now.
    pub may_delete: fn() -> bool,
    /// Takes a tensor that nothing uses any more, whose drop calls the deleter. Called where
    /// `may_delete` says no, and for a tensor that an export kept: such releases can nest to any
    /// depth. It must not panic.
    pub release: fn(Tensor),
}

/// That of the first binding which took a tensor; null before. A process has one runtime of a
/// language.
static BINDING: AtomicPtr<Binding> = AtomicPtr::new(ptr::null_mut());

/// Keeps the first binding.
#[inline(always)]
fn keep(binding: fn() -> &'static Binding) {
    if BINDING.load(Ordering::Relaxed).is_null() {
        keep_first(binding);
    }
}

#[cold]
fn keep_first(binding: fn() -> &'static Binding) {
    let binding = ptr::from_ref(binding()).cast_mut();
    let (first, later) = (Ordering::Release, Ordering::Relaxed);
    // An error: another thread was the first.
    let _ = BINDING.compare_exchange(ptr::null_mut(), binding, first, later);
}

/// The first binding.
#[inline]
fn kept() -> Option<&'static Binding> {
    // SAFETY: null, or made of a reference to a binding that is never freed nor changed (F6).
    unsafe { BINDING.load(Ordering::Acquire).as_ref() }
}

/// For language bindings: no part of the API that users rely on.
#[doc(hidden)]
impl Tensor {
    /// As [`try_from_raw`](Self::try_from_raw), but the binding decides when the producer's deleter
    /// is called after the memory's last handle is dropped. All handles of the memory keep this, and
    /// what is exported of them.
    ///
    /// The first binding of a process is that of all. `binding` is called before its first tensor is
    /// taken.
    ///
    /// # Safety
    ///
    /// As for [`try_from_raw`](Self::try_from_raw).
    ///
    /// # Errors
    ///
    /// As for [`try_from_raw`](Self::try_from_raw).
    #[inline(always)]
    pub unsafe fn try_from_raw_bound(
        tensor: *mut DLManagedTensorVersioned,
        binding: fn() -> &'static Binding,
    ) -> Result<Self, Error> {
        keep(binding);
        // SAFETY: the caller's duty.
        unsafe { Handle::import(Foreign::versioned(tensor)?, true) }.map(Self)
    }

    /// As [`try_from_raw_bound`](Self::try_from_raw_bound), for DLPack before 1.0.
    ///
    /// # Safety
    ///
    /// As for [`try_from_raw`](Self::try_from_raw).
    ///
    /// # Errors
    ///
    /// As for [`try_from_raw`](Self::try_from_raw).
    #[inline]
    pub unsafe fn try_from_raw_legacy_bound(
        tensor: *mut DLManagedTensor,
        binding: fn() -> &'static Binding,
    ) -> Result<Self, Error> {
        keep(binding);
        // SAFETY: the caller's duty.
        unsafe { Handle::import(Foreign::legacy(tensor)?, true) }.map(Self)
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        match self.root() {
            // SAFETY: owned, and this is its end (R3).
            Root::Header => unsafe { header::leave(self.managed()) },
            Root::Versioned | Root::Legacy
                if self.marks.is_bound() && (self.marks.is_kept() || !may_delete()) =>
            {
                let marks = self.marks.with_bound(false);
                release(Self { tensor: self.tensor, marks });
            }
            // SAFETY: the same.
            Root::Versioned => unsafe { Foreign::Versioned(self.managed()).delete() },
            // SAFETY: the same.
            Root::Legacy => unsafe { Foreign::Legacy(self.managed()).delete() },
            Root::Lent => {}
        }
    }
}

/// Whether the deleter of a bound handle is called at once.
#[inline]
fn may_delete() -> bool {
    kept().is_none_or(|binding| (binding.may_delete)())
}

/// Gives a handle, no longer bound, to the binding that took its tensor.
#[cold]
fn release(handle: Handle) {
    let tensor = Tensor(handle);
    match kept() {
        Some(binding) => (binding.release)(tensor),
        None => drop(tensor),
    }
}
