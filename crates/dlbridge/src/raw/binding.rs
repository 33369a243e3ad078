//! Producers' tensors that a language binding drops: it decides when, and on which thread.
//! Deciding that does not belong here (see `release` of `dlbridge-pyo3`).
//! Invariant: R3: a bound handle becomes one unbound tensor when it is dropped, and nothing else.

use std::sync::OnceLock;

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned};

use super::Handle;
use super::foreign::Foreign;
use crate::{Error, Tensor};

/// What a binding does with a tensor that nothing uses any more: it drops it, now or later.
type Release = fn(Tensor);

/// That of the first binding which took a tensor. A process has one runtime of a language.
static RELEASE: OnceLock<Release> = OnceLock::new();

/// For language bindings: no part of the API that users rely on.
#[doc(hidden)]
impl Tensor {
    /// As [`try_from_raw`](Self::try_from_raw), but the producer's deleter is not called where the
    /// memory's last handle is dropped: `release` gets a tensor then, whose drop calls it. All
    /// handles of the memory keep this, and what is exported of them.
    ///
    /// The first `release` of a process is that of all. It must not panic.
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
        release: fn(Self),
    ) -> Result<Self, Error> {
        RELEASE.get_or_init(|| release);
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
        release: fn(Self),
    ) -> Result<Self, Error> {
        RELEASE.get_or_init(|| release);
        // SAFETY: the caller's duty.
        unsafe { Handle::import(Foreign::legacy(tensor)?, true) }.map(Self)
    }
}

/// Gives a handle, no longer bound, to the binding that took its tensor.
#[inline]
pub(super) fn drop_bound(handle: Handle) {
    let tensor = Tensor(handle);
    match RELEASE.get() {
        Some(release) => release(tensor),
        None => drop(tensor),
    }
}
