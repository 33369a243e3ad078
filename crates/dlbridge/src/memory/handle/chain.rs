//! Chains of tensors that own other tensors: finds the innermost handle that keeps the memory alive, so
//! that exporting again and again does not build a chain (R2).
//! Invariant: R3: a `KeepAlive` counts as a handle of its header.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned};

use super::abi::{ManagedTensor, not_null};
use super::header::Header;
use super::metadata::{Metadata, Origin};
use super::{Handle, header};
use crate::Access;
use crate::memory::descriptor::Borrowed;

impl Handle {
    /// A new header for a tensor of this library that came back from C. It owns what keeps the memory
    /// alive, not the old header.
    ///
    /// # Safety
    ///
    /// `described` is this handle's memory.
    #[cold]
    pub(crate) unsafe fn wrap_returned(self, described: Borrowed<'_>) -> Self {
        let metadata = self.metadata;
        let end = self.chain_end();
        let checked = described.checked();
        let owner = end.unwrap_or_else(|| {
            let mut innermost = self.unwrap();
            innermost.metadata = innermost.metadata.with_chained();
            innermost
        });
        // SAFETY: the same memory, kept alive by the owner (R2).
        unsafe { Self::with_owner(owner, checked, metadata) }
    }

    /// The handle that this one owns, and whose memory it shares.
    pub(crate) fn inner(&self) -> Option<&Self> {
        self.owner::<Self>()
    }

    /// Whether this is a tensor of this library that left Rust and came back.
    pub(crate) fn is_returned(&self) -> bool {
        self.origin() != Origin::Header && self.own_header().is_some()
    }

    /// The handle inside a tensor of this library that came back from C, or this one.
    fn unwrap(self) -> Self {
        if !self.is_returned() {
            return self;
        }
        let Some((header, _)) = self.own_header() else { return self };
        // A `KeepAlive` may count as a handle of a header that left Rust.
        // SAFETY: alive as long as `self`, which owns it (R2).
        if !unsafe { header::is_unique(header) } {
            return self;
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: its only owner, which is forgotten; its description was copied (R3).
        let inner = unsafe { header::take_owner::<Self>(header) };
        inner.unwrap_or_else(|_| ManuallyDrop::into_inner(this))
    }

    /// The handle that [`with_header`](Self::with_header) was called on, of this one's class, if this
    /// one is unique.
    pub(crate) fn without_header(self) -> Option<Self> {
        if !self.is_unique() {
            return None;
        }
        let this = self.without_new_lease();
        // A header is made only around a producer's tensor; any other owner is the end of a chain.
        if !this.is_unique() || this.owner::<Self>().is_none_or(|inner| !inner.has_producer()) {
            return Some(this);
        }
        let metadata = this.metadata;
        let mut inner = this.take_own_owner::<Self>().unwrap_or_else(|this| this);
        inner.metadata = inner.metadata.of_class(metadata);
        Some(inner)
    }

    /// Another handle of the innermost tensor of the chain that can be counted. It keeps the memory
    /// alive without the tensors in between.
    fn chain_end(&self) -> Option<Self> {
        let (mut at, mut found) = (self, None);
        // An exclusive tensor is kept itself, which keeps other code from writing.
        while at.access() != Access::Exclusive {
            let Some((header, is_lent)) = at.own_header() else { break };
            if is_lent {
                // Other handles shared it, so its class is not exclusive.
                let metadata = Metadata::new(at.metadata.flags(), at.access());
                let metadata = metadata.with_origin(Origin::Header);
                found = Some((header::tensor_of(header), metadata));
            }
            // SAFETY: alive as long as `self`, which owns it directly or not (R2).
            let Some(inner) = (unsafe { header::owner::<Self>(header) }) else { break };
            if inner.origin() == Origin::Header && inner.access() != Access::Exclusive {
                found = Some((inner.tensor, inner.metadata));
            }
            at = inner;
        }
        let (tensor, metadata) = found?;
        let end = ManuallyDrop::new(Self { tensor, metadata });
        // SAFETY: it has a header, and its class is not exclusive (asked above; R3).
        Some(unsafe { end.another() })
    }

    /// The header of an export of this library, also of one that left Rust and came back, and whether what came back is its
    /// lent descriptor.
    fn own_header(&self) -> Option<(NonNull<Header>, bool)> {
        match self.origin() {
            Origin::Header => Some((self.managed(), false)),
            // SAFETY: of the ABI of the origin, owned, and alive as long as the handle (R2).
            Origin::Versioned => unsafe {
                header::of_export(self.managed::<DLManagedTensorVersioned>())
            },
            // SAFETY: the same.
            Origin::Legacy => unsafe { header::of_export(self.managed::<DLManagedTensor>()) },
            Origin::Borrowed => None,
        }
    }
}

/// Keeps the memory of an export alive, as long as a handle of its tensor would.
///
/// For language bindings, not for users.
#[doc(hidden)]
#[derive(Debug)]
pub struct KeepAlive(NonNull<Header>);

// SAFETY: it only counts a handle of a header, whose owner is `Send` (R9).
unsafe impl Send for KeepAlive {}
// SAFETY: the same.
unsafe impl Sync for KeepAlive {}

impl KeepAlive {
    /// Keeps the memory of a managed tensor, in either ABI, if this library exported it. An export of
    /// an export keeps the first one: a tensor may go to another library and back any number of times.
    ///
    /// # Safety
    ///
    /// `tensor` is null or valid, and its deleter is not called before this function returns.
    #[must_use]
    pub unsafe fn of_raw<A: ManagedTensor>(tensor: *mut A) -> Option<Self> {
        // SAFETY: the caller's duty.
        let (outer, _) = unsafe { header::of_export(not_null(tensor).ok()?) }?;
        // SAFETY: alive, since its deleter was not called (the caller's duty).
        Some(unsafe { Self::of_header(outer) })
    }

    /// The same of a handle; `None` for one without a header.
    pub(crate) fn of_handle(handle: &Handle) -> Option<Self> {
        // SAFETY: alive as long as the handle (R2).
        handle.header().map(|header| unsafe { Self::of_header(header) })
    }

    /// # Safety
    ///
    /// The header is alive as long as this function runs.
    unsafe fn of_header(outer: NonNull<Header>) -> Self {
        // SAFETY: the caller's duty.
        let first = unsafe { end_of_chain(outer) };
        // SAFETY: the same: `outer` keeps it alive (R3).
        unsafe { header::retain(first) };
        Self(first)
    }
}

impl Drop for KeepAlive {
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
unsafe fn end_of_chain(mut header: NonNull<Header>) -> NonNull<Header> {
    // SAFETY: alive, or kept alive by one that is (the caller's duty, R3).
    while let Some(next) = unsafe { next_in_chain(header) } {
        header = next;
    }
    header
}

/// The header that a header's owner is a handle of.
///
/// # Safety
///
/// The header is alive as long as this function runs.
unsafe fn next_in_chain(header: NonNull<Header>) -> Option<NonNull<Header>> {
    // SAFETY: the caller's duty; owners of these types are never written (R3).
    if let Some(handle) = unsafe { header::owner::<Handle>(header) } {
        return handle.header();
    }
    // SAFETY: the same.
    unsafe { header::owner::<KeepAlive>(header) }.map(|keep| keep.0)
}
