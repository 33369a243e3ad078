//! Tensors that own other tensors: finds the innermost handle that keeps the memory alive, so that
//! exporting again and again does not build a chain (R2).

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::Handle;
use super::borrowed::Borrowed;
use super::header::{self, Header};
use super::marks::Root;
use crate::Access;

impl Handle {
    /// A new header for a tensor of this library that came back from C. It owns what keeps the memory
    /// alive, not the old header.
    #[cold]
    pub(crate) fn wrap_returned(self) -> Self {
        let marks = self.marks;
        let keeper = self.keeper();
        // SAFETY: the memory is alive as long as what becomes the owner below (R2).
        let described = unsafe { Borrowed::copied(self.parts()) };
        let parts = described.parts();
        let owner = keeper.unwrap_or_else(|| {
            let mut innermost = self.unwrap();
            innermost.marks = innermost.marks.with_kept();
            innermost
        });
        // SAFETY: the same memory, kept alive by the owner (R2).
        unsafe { Self::around(owner, parts, marks) }
    }

    /// The handle that this one owns, and whose memory it shares.
    pub(crate) fn behind(&self) -> Option<&Self> {
        self.owner::<Self>()
    }

    /// Whether this is a tensor of this library that left Rust and came back.
    pub(crate) fn is_returned(&self) -> bool {
        self.root() != Root::Header && self.own_header().is_some()
    }

    /// The handle inside a tensor of this library that came back from C, or this one.
    fn unwrap(self) -> Self {
        let (Some(_), Some(header)) = (self.foreign(), self.own_header()) else { return self };
        // A `Keep` may count as a handle of a header that left Rust.
        // SAFETY: alive as long as `self`, which owns it (R2).
        if !unsafe { header::is_unique(header) } {
            return self;
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: its only owner, which is forgotten; its parts were copied (R3).
        let inner = unsafe { header::take_owner::<Self>(header) };
        inner.unwrap_or_else(|_| ManuallyDrop::into_inner(this))
    }

    /// The handle that [`with_header`](Self::with_header) was called on, of this one's class, if this
    /// one is unique.
    pub(crate) fn without_header(self) -> Option<Self> {
        if !self.is_unique() {
            return None;
        }
        // A header is made only around a producer's tensor; another handle inside is a keeper.
        if self.owner::<Self>().is_none_or(|inner| inner.foreign().is_none()) {
            return Some(self);
        }
        let marks = self.marks;
        let mut inner = self.take_owner::<Self>().unwrap_or_else(|this| this);
        inner.marks = inner.marks.of_class(marks);
        Some(inner)
    }

    /// Whether dropping this handle releases the memory.
    #[inline]
    pub(crate) fn is_last(&self) -> bool {
        self.is_unique() && self.root() != Root::Borrowed
    }

    /// Another handle of the innermost of the tensors around whose memory this one was made, if one of
    /// them can be counted. It keeps the memory alive, without the tensors in between.
    fn keeper(&self) -> Option<Self> {
        let (mut at, mut found) = (self, None);
        // An exclusive tensor is kept itself, which keeps other code from writing.
        while at.access() != Access::Exclusive {
            let Some(header) = at.own_header() else { break };
            // SAFETY: alive as long as `self`, which owns it directly or not (R2).
            let Some(inner) = (unsafe { header::owner::<Self>(header) }) else { break };
            if inner.root() == Root::Header && inner.access() != Access::Exclusive {
                found = Some(inner);
            }
            at = inner;
        }
        // SAFETY: it has a header, and its class is not exclusive (asked above; R3).
        found.map(|inner| unsafe { inner.another() })
    }

    /// The header of an export of this library, even if it left Rust and came back.
    fn own_header(&self) -> Option<NonNull<Header>> {
        match self.foreign() {
            // SAFETY: owned, and alive as long as the handle (R2).
            Some(tensor) => unsafe { tensor.own_header() },
            None => self.header(),
        }
    }
}
