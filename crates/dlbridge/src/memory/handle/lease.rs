//! `Lease`: the owner of a header that only handles in Rust share, so that a language binding knows how long Rust
//! keeps memory that other code may write.
//! Which borrows exclude each other belongs to the binding.
//! Invariants: the handle inside has a header, is of class `Shared` and has no lease of its own. A handle
//! that code outside Rust gets does not own the lease.

use std::any::Any;
use std::sync::OnceLock;

use super::{Handle, Metadata};
use crate::Access;
use crate::layout::Bytes;
use crate::memory::descriptor::Checked;

/// A borrow to read, in a language binding's table. It ends when this is dropped.
#[derive(Debug)]
pub struct Kept {
    /// The number of the borrow.
    pub number: usize,
    /// The address of the first byte that is borrowed.
    pub start: usize,
    /// Ends the borrow, on any thread.
    pub end: fn(usize, usize),
}

impl Drop for Kept {
    fn drop(&mut self) {
        (self.end)(self.number, self.start);
    }
}

/// What the handles in Rust share. Fields are dropped in this order.
pub(crate) struct Lease {
    /// Empty as long as no code outside Rust has the memory.
    borrow: OnceLock<Kept>,
    handle: Handle,
}

/// A lease that was taken out of its header, with the metadata of the handle that had it: the handle
/// inside has the flags and the class from before the lease.
struct Ended {
    lease: Lease,
    metadata: Metadata,
}

impl Ended {
    /// The handle inside, with the flags and the class of the one that had the lease. The borrow ends.
    fn into_handle(self) -> Handle {
        self.lease.into_handle().with_class_of(self.metadata)
    }

    /// Takes the owner out as well, or puts everything back as it was.
    fn take_owner<O: Any>(self) -> Result<O, Handle> {
        let Self { lease: Lease { borrow, handle }, metadata } = self;
        handle.take_own_owner().map_err(|handle| handle.leased(borrow).with_class_of(metadata))
    }
}

impl Lease {
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The handle inside. The borrow ends first.
    fn into_handle(self) -> Handle {
        drop(self.borrow);
        self.handle
    }
}

impl Handle {
    /// The bytes of a tensor in memory that the host can access; `None` without elements.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> Option<Bytes> {
        let checked = self.checked();
        if !checked.device().is_host_accessible() {
            return None;
        }
        checked.bytes_of_elements()
    }

    /// Puts memory that Rust reads through a view, and that other code may get to write, under a lease.
    #[inline]
    pub(crate) fn under_lease(self) -> Self {
        let is_read = self.access() == Access::Shared && !self.metadata.is_leased();
        if is_read && self.checked().device().is_host_accessible() {
            self.leased(OnceLock::new())
        } else {
            self
        }
    }

    /// Puts a tensor under a lease with this borrow of its memory.
    ///
    /// # Panics
    ///
    /// If its class is not `Shared`: the lease is one more handle of the memory.
    pub(crate) fn kept(self, borrow: Kept) -> Self {
        assert_eq!(self.access(), Access::Shared, "a binding borrows memory of class Shared");
        if self.metadata.is_leased() { self } else { self.leased(borrow.into()) }
    }

    #[cold]
    fn leased(self, borrow: OnceLock<Kept>) -> Self {
        let (metadata, flags) = (self.metadata.with_lease(true), self.flags());
        let handle = self.with_header();
        // SAFETY: alive as long as the handle, which moves but keeps it (R2).
        let tensor = unsafe { handle.tensor.as_ref() };
        // SAFETY: validated; alive as long as the owner, which is the lease (R2).
        let checked = unsafe { Checked::described(tensor, metadata.access(), flags) };
        // SAFETY: the same memory, alive as long as the owner, which has the handle (R2).
        unsafe { Self::with_owner(Lease { borrow, handle }, checked, metadata) }
    }

    /// The tensor for code outside Rust, without the lease. If other handles in Rust share the lease,
    /// `borrow` borrows the memory to read for as long as they do. Without it, the code that gets the tensor has
    /// the duty not to write what they read (T6).
    #[inline]
    pub(crate) fn given(self, borrow: Option<fn(&Bytes) -> Kept>) -> Self {
        if self.metadata.is_leased() { self.without_lease(borrow) } else { self }
    }

    #[cold]
    fn without_lease(self, borrow: Option<fn(&Bytes) -> Kept>) -> Self {
        let metadata = self.metadata;
        let whole = match self.end_lease() {
            Ok(ended) => return ended.into_handle(),
            Err(this) => this,
        };
        let mut at = &whole;
        let lease = loop {
            match (at.owner::<Lease>(), at.inner()) {
                (Some(lease), _) => break lease,
                (None, Some(inner)) => at = inner,
                (None, None) => return whole,
            }
        };
        if let (None, Some(borrow), Some(bytes)) =
            (lease.borrow.get(), borrow, lease.handle.bytes())
        {
            // An error means that another thread was first, and ends the second borrow.
            let _ = lease.borrow.set(borrow(&bytes));
        }
        // SAFETY: with a header, and not exclusive (this module's invariant; R3).
        let handle = unsafe { lease.handle.another() };
        if at.tensor == whole.tensor {
            return handle.with_class_of(metadata);
        }
        // SAFETY: elements of the handle's memory (R1), of their class (R4), which it keeps alive (R2).
        unsafe { Self::with_owner(handle, whole.checked(), metadata.with_lease(false)) }
    }

    /// Without a lease that has no borrow, if this is the only handle.
    pub(super) fn without_new_lease(self) -> Self {
        if self.owner::<Lease>().is_none_or(|lease| lease.borrow.get().is_some()) {
            return self;
        }
        self.end_lease().map_or_else(|this| this, Ended::into_handle)
    }

    /// Takes the lease out, if this is its only handle: the one way out of a lease.
    fn end_lease(self) -> Result<Ended, Self> {
        let metadata = self.metadata;
        self.take_own_owner().map(|lease| Ended { lease, metadata })
    }

    /// Flags and class of another handle of the same memory.
    fn with_class_of(mut self, metadata: Metadata) -> Self {
        self.metadata = self.metadata.of_class(metadata);
        self
    }

    /// Takes the owner out from under the lease, if it is of type `O` and no other handle has the memory.
    #[cold]
    pub(super) fn take_leased_owner<O: Any>(self) -> Result<O, Self> {
        self.end_lease()?.take_owner()
    }
}
