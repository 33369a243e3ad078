//! `Keep`: keeps the memory of an export alive after it returned inside an object of another library.
//! Invariant: R3: a `Keep` counts as a handle of its header.

use std::ptr::NonNull;

use super::Handle;
use super::foreign::Foreign;
use super::header::{self, Header};
use super::managed::ManagedTensor;

/// Keeps the memory of an export alive, as long as a handle of its tensor would.
///
/// For language bindings, not for users.
#[doc(hidden)]
#[derive(Debug)]
pub struct Keep(NonNull<Header>);

// SAFETY: it only counts a handle of a header, whose owner is `Send` (R9).
unsafe impl Send for Keep {}
// SAFETY: the same.
unsafe impl Sync for Keep {}

impl Keep {
    /// Keeps the memory of a managed tensor, in either ABI, if this library exported it. An export of
    /// an export keeps the first one: a tensor may go to another library and back any number of times.
    ///
    /// # Safety
    ///
    /// `tensor` is null or valid, and its deleter is not called before this function returns.
    #[must_use]
    pub unsafe fn of_raw<A: ManagedTensor>(tensor: *mut A) -> Option<Self> {
        // SAFETY: the caller's duty.
        let outer = unsafe { Foreign::new(tensor).ok()?.own_header() }?;
        // SAFETY: alive, since its deleter was not called (the caller's duty).
        let first = unsafe { first_behind(outer) };
        // SAFETY: the same: `outer` keeps it alive (R3).
        unsafe { header::retain(first) };
        Some(Self(first))
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        // SAFETY: counted when this was made, and left once (R3).
        unsafe { header::drop_handle(self.0) };
    }
}

/// The header whose owner is no handle of another header.
///
/// # Safety
///
/// The header is alive as long as this function runs.
unsafe fn first_behind(mut header: NonNull<Header>) -> NonNull<Header> {
    // SAFETY: alive, or kept alive by one that is (the caller's duty, R3).
    while let Some(next) = unsafe { behind(header) } {
        header = next;
    }
    header
}

/// The header that a header's owner is a handle of.
///
/// # Safety
///
/// The header is alive as long as this function runs.
unsafe fn behind(header: NonNull<Header>) -> Option<NonNull<Header>> {
    // SAFETY: the caller's duty; owners of these types are never written (R3).
    if let Some(handle) = unsafe { header::owner::<Handle>(header) } {
        return handle.header();
    }
    // SAFETY: the same.
    unsafe { header::owner::<Keep>(header) }.map(|keep| keep.0)
}
