//! `Rejected`: a managed tensor that validation rejected, owned by the error.
//! Invariant: R3: the tensor is owned here until it is taken out.

use std::fmt;

use crate::raw::handle::abi::{delete, not_null};
use crate::{Error, ManagedTensor};

/// A managed tensor that [`Tensor::from_raw`](crate::Tensor::from_raw) rejected, and the reason.
///
/// It owns the tensor: dropping it, or converting it into an [`Error`] as `?` does, calls the deleter.
/// [`into_parts`](Self::into_parts) returns the tensor unchanged.
pub struct Rejected<A: ManagedTensor> {
    tensor: *mut A,
    error: Error,
}

// SAFETY: it owns a managed tensor, whose deleter may be called on any thread (T4).
unsafe impl<A: ManagedTensor> Send for Rejected<A> {}
// SAFETY: a shared reference gives access to the error only (R9).
unsafe impl<A: ManagedTensor> Sync for Rejected<A> {}

impl<A: ManagedTensor> Rejected<A> {
    /// # Safety
    ///
    /// The tensor is null or owned by the caller, who forgets it.
    #[cold]
    pub(super) unsafe fn new(tensor: *mut A, error: Error) -> Self {
        Self { tensor, error }
    }

    /// The reason.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the tensor, whose deleter was not called, and the reason.
    #[must_use = "the memory leaks unless the deleter is called"]
    pub fn into_parts(mut self) -> (*mut A, Error) {
        let tensor = std::mem::replace(&mut self.tensor, std::ptr::null_mut());
        (tensor, self.error.clone())
    }
}

impl<A: ManagedTensor> Drop for Rejected<A> {
    fn drop(&mut self) {
        if let Ok(tensor) = not_null(self.tensor) {
            // SAFETY: owned, and not used again (R3).
            unsafe { delete(tensor) };
        }
    }
}

impl<A: ManagedTensor> From<Rejected<A>> for Error {
    fn from(rejected: Rejected<A>) -> Self {
        rejected.error.clone()
    }
}

impl<A: ManagedTensor> fmt::Debug for Rejected<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rejected").field(&self.error).finish()
    }
}

impl<A: ManagedTensor> fmt::Display for Rejected<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<A: ManagedTensor> std::error::Error for Rejected<A> {}
