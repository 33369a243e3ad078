//! Managed tensors: the owning handle behind `Tensor`, its metadata, and the header of an export (R3).

pub(crate) mod abi;
mod chain;
mod export;
pub(crate) mod header;
pub(crate) mod lease;
pub(crate) mod metadata;

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned, DLTensor};

use self::abi::{Abi, RawFields};
use self::header::{Header, Owns};
use self::lease::Lease;
use self::metadata::{Metadata, Origin};
use super::descriptor::checked::Memory;
use super::descriptor::validate::{is_ordinary, validate_any};
use super::descriptor::{Borrowed, Checked};
use super::release;
use crate::layout::{Cut, Layout, Lists};
use crate::{Access, Error, Flags, TypeCode};

pub use self::abi::ManagedTensor;
pub use self::chain::KeepAlive;

/// Owns the memory of a tensor: a pointer to its descriptor, and what validation found.
///
/// Two words, which are passed in registers. No references, since the memory is freed while the handle
/// is still an argument of `drop`.
pub(crate) struct Handle {
    /// Has explicit strides, and does not change while the handle owns it (T1).
    tensor: NonNull<DLTensor>,
    metadata: Metadata,
}

/// The original tensor without strides, owned by the header that adds them. Only the fields of its
/// producer are read, never its elements.
pub(crate) struct Unstrided(Handle);

const _: () = assert!(size_of::<Option<Handle>>() == 2 * size_of::<usize>());

// SAFETY: a header's owner is `Send`, and is not touched before it is dropped; a foreign deleter
// may be called on any thread (trust T4). Elements are plain data.
unsafe impl Send for Handle {}
// SAFETY: `&Handle` gives access to metadata and elements only, both free of cells (R9).
unsafe impl Sync for Handle {}

impl Handle {
    /// Validates a foreign tensor. On success the handle owns it; on failure the
    /// caller still does. If `is_bound`, a language binding drops the tensor (see `release`).
    ///
    /// # Safety
    ///
    /// The tensor is owned by the caller and satisfies `SAFETY.md`'s list of trust.
    #[inline(always)]
    pub(crate) unsafe fn import<A: Abi>(tensor: NonNull<A>, is_bound: bool) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        let (flags, descriptor) = unsafe { A::open(tensor) }?;
        let origin = if A::IS_VERSIONED { Origin::Versioned } else { Origin::Legacy };
        // SAFETY: alive, and not written while the handle owns it (T1).
        let fields = unsafe { descriptor.as_ref() };
        // SAFETY: the caller's duty (T2).
        if unsafe { is_ordinary(fields) } {
            let metadata = Metadata::imported(flags, origin, is_bound);
            return Ok(Self { tensor: descriptor, metadata });
        }
        // SAFETY: the caller's duty, for the descriptor of this tensor.
        unsafe { Self::import_any(descriptor, flags, origin, is_bound) }
    }

    /// Validates any descriptor. A header adds strides to a descriptor without them.
    ///
    /// # Safety
    ///
    /// As for [`import`](Self::import); `origin` is the kind of managed tensor around the descriptor.
    #[cold]
    unsafe fn import_any(
        tensor: NonNull<DLTensor>,
        flags: Flags,
        origin: Origin,
        is_bound: bool,
    ) -> Result<Self, Error> {
        // SAFETY: alive, and not written while the handle owns it (T1).
        let fields = unsafe { tensor.as_ref() };
        let mut room = None;
        // SAFETY: the caller's duty (T2); alive as long as `this`, which owns it (R2).
        let mut checked = unsafe { validate_any(fields, flags, &mut room) }?;
        let mut this = Self { tensor, metadata: Metadata::imported(flags, origin, is_bound) };
        if !fields.strides.is_null() || checked.shape().is_empty() {
            return Ok(this);
        }
        checked.flags = this.flags();
        if this.is_returned() {
            // SAFETY: a copy, of memory that the new header's owner keeps alive (R2).
            let described = unsafe { Borrowed::copied(checked) };
            // SAFETY: described just now (R2).
            return Ok(unsafe { this.wrap_returned(described) });
        }
        this.metadata = this.metadata.with_chained();
        let metadata = this.metadata;
        // SAFETY: the same memory, alive as long as the owner, which is `this` (R2).
        Ok(unsafe { Self::with_owner(Unstrided(this), checked, metadata) })
    }

    /// A handle over a plain descriptor, which owns nothing.
    ///
    /// # Safety
    ///
    /// `metadata` are the result of validating this same descriptor, which has strides and satisfies
    /// `SAFETY.md`'s list of trust while the handle lives. The handle is never exported.
    #[inline(always)]
    pub(crate) unsafe fn borrowed(tensor: NonNull<DLTensor>, metadata: Metadata) -> Self {
        Self { tensor, metadata: metadata.with_origin(Origin::Borrowed) }
    }

    #[inline(always)]
    pub(crate) fn checked(&self) -> Checked<'_> {
        // SAFETY: alive as long as the handle (R2), and not written (trust T1).
        let tensor = unsafe { self.tensor.as_ref() };
        // SAFETY: validated, or `header` wrote it; alive as long (R2).
        unsafe { Checked::described(tensor, self.metadata.access(), self.flags()) }
    }

    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        self.metadata.origin()
    }

    #[inline]
    pub(crate) fn descriptor(&self) -> *const DLTensor {
        self.tensor.as_ptr()
    }

    #[inline]
    pub(crate) fn access(&self) -> Access {
        self.metadata.access()
    }

    #[inline]
    pub(super) fn flags(&self) -> Flags {
        let named = self.metadata.flags();
        match self.origin() {
            Origin::Header | Origin::Versioned => {
                let managed = self.managed::<DLManagedTensorVersioned>();
                // SAFETY: of the ABI of the origin, and alive (R2).
                let flags = Flags(unsafe { (*managed.as_ptr()).flags });
                (flags - Flags::NAMED) | named
            }
            Origin::Legacy | Origin::Borrowed => named,
        }
    }

    /// The managed tensor around the descriptor, in the ABI of the origin. Not for a borrowed one.
    #[inline]
    pub(crate) fn managed<A>(&self) -> NonNull<A> {
        let offset = match self.origin() {
            Origin::Legacy => DLManagedTensor::TENSOR_AT,
            _ => DLManagedTensorVersioned::TENSOR_AT,
        };
        // SAFETY: inside the same allocation, of which the pointer was made (R3).
        unsafe { self.tensor.byte_sub(offset) }.cast()
    }

    #[inline]
    pub(crate) fn header(&self) -> Option<NonNull<Header>> {
        (self.origin() == Origin::Header).then(|| self.managed())
    }

    /// Whether the handle owns a producer's managed tensor.
    #[inline]
    fn has_producer(&self) -> bool {
        matches!(self.origin(), Origin::Versioned | Origin::Legacy)
    }

    /// Whether the memory is a producer's.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        self.metadata.is_foreign()
    }

    /// The fields of the producer's descriptor; `None` for memory that Rust owns.
    pub(crate) fn raw_fields(&self) -> Option<RawFields> {
        let unstrided = self.owner().map(|Unstrided(first)| first);
        let leased = || self.owner().map(Lease::handle);
        if let Some(inner) = unstrided.or_else(|| self.inner()).or_else(leased) {
            return inner.raw_fields();
        }
        match self.origin() {
            Origin::Versioned => {
                // SAFETY: alive and of a known version since validation (R2).
                Some(unsafe { self.managed::<DLManagedTensorVersioned>().as_ref() }.raw_fields())
            }
            Origin::Legacy => {
                // SAFETY: the same.
                Some(unsafe { self.managed::<DLManagedTensor>().as_ref() }.raw_fields())
            }
            Origin::Header | Origin::Borrowed => None,
        }
    }

    /// Gives up exclusive access, and the `IS_COPIED` flag: the memory is no longer one consumer's copy.
    pub(crate) fn demote(&mut self) {
        let metadata = &mut self.metadata;
        if metadata.access() == Access::Exclusive {
            *metadata = metadata.with(metadata.flags() - Flags::IS_COPIED, Access::Shared);
        }
    }

    /// Makes the memory read-only, and clears `IS_COPIED`. Exclusive memory becomes frozen, since the
    /// only handle gives up writing.
    pub(crate) fn freeze(&mut self) {
        let metadata = self.metadata;
        let flags = (metadata.flags() - Flags::IS_COPIED) | Flags::READ_ONLY;
        self.metadata =
            metadata.with(flags, metadata.access().to_read()).with_legacy_read_only(false);
    }

    /// Changes the class of the memory.
    ///
    /// # Safety
    ///
    /// `access` is true of the elements (R4).
    pub(crate) unsafe fn set_access(&mut self, access: Access) {
        let metadata = &mut self.metadata;
        *metadata = metadata.with(metadata.flags(), access);
    }

    /// Whether the memory is read-only only for lack of a flag in the legacy ABI.
    #[inline]
    pub(crate) fn is_legacy_read_only(&self) -> bool {
        self.metadata.is_legacy_read_only()
    }

    /// Counts read-only memory as read-only for lack of a flag.
    pub(crate) fn set_legacy_read_only(&mut self) {
        let metadata = self.metadata;
        self.metadata = metadata.with_legacy_read_only(metadata.flags().contains(Flags::READ_ONLY));
    }

    /// Makes memory writable that is read-only for lack of a flag in the legacy ABI. Other memory is
    /// left unchanged.
    ///
    /// # Safety
    ///
    /// The producer permits writing (T8).
    pub(crate) unsafe fn assume_writable(&mut self) {
        let metadata = self.metadata;
        if metadata.is_legacy_read_only() {
            let flags = metadata.flags() - Flags::READ_ONLY;
            self.metadata = metadata.with(flags, metadata.access()).with_legacy_read_only(false);
        }
    }

    /// The owner, if it is of type `O` and the tensor never left Rust. Only for owners whose memory is
    /// not on the host: a reference to another owner could alias its elements.
    #[inline]
    pub(crate) fn owner<O: Any + Sync>(&self) -> Option<&O> {
        // SAFETY: the handle owns the header and is borrowed as long (R2).
        self.header().and_then(|header| unsafe { header::owner(header) })
    }

    /// Whether the owner is of type `O`.
    #[inline]
    pub(crate) fn has_owner<O: Any>(&self) -> bool {
        // SAFETY: the handle owns the header and is borrowed as long (R2).
        self.header().is_some_and(|header| unsafe { header::has_owner::<O>(header) })
    }

    /// Takes the owner out, if it is of type `O`.
    pub(crate) fn into_owner<O: Any>(self) -> Result<O, Self> {
        if self.may_hold_odd_bools() { Err(self) } else { self.take_owner() }
    }

    /// Takes the owner out, also from under a lease, without a check of its values.
    fn take_owner<O: Any>(self) -> Result<O, Self> {
        self.take_own_owner().or_else(Self::take_leased_owner)
    }

    /// Takes the owner of this handle's header out. A handle that shares its header has no owner to take.
    fn take_own_owner<O: Any>(self) -> Result<O, Self> {
        if !self.is_unique() {
            return Err(self);
        }
        let handle = ManuallyDrop::new(self);
        let Some(header) = handle.header() else {
            return Err(ManuallyDrop::into_inner(handle));
        };
        // SAFETY: the handle owned the header and is forgotten; the elements were borrowed from it
        // (R3).
        unsafe { header::take_owner(header) }.map_err(|_| ManuallyDrop::into_inner(handle))
    }

    /// Whether other code may have written bytes that are no `bool` to memory that a `Vec<bool>` may own.
    /// For all other elements, any bytes are values (`Element`'s duty).
    fn may_hold_odd_bools(&self) -> bool {
        let checked = self.checked();
        let is_bool = checked.dtype().code == TypeCode::BOOL;
        checked.access == Access::Shared && is_bool && checked.device.is_host_accessible()
    }

    /// Whether no other handle shares this one's header.
    #[inline]
    pub(crate) fn is_unique(&self) -> bool {
        // SAFETY: this is a handle of the header (R2).
        self.header().is_none_or(|header| unsafe { header::is_unique(header) })
    }

    /// Another handle of the same header.
    ///
    /// # Safety
    ///
    /// There is a header, and the class is not exclusive.
    #[inline]
    pub(crate) unsafe fn another(&self) -> Self {
        // SAFETY: this is a handle of the header (the caller's duty).
        unsafe { header::retain(self.managed()) };
        Self { tensor: self.tensor, metadata: self.metadata }
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        match self.origin() {
            // SAFETY: owned, and this is its end (R3).
            Origin::Header => unsafe { header::drop_handle(self.managed()) },
            Origin::Versioned | Origin::Legacy
                if self.metadata.is_bound()
                    && (self.metadata.is_chained() || !release::may_delete()) =>
            {
                let metadata = self.metadata.with_bound(false);
                release::release(Self { tensor: self.tensor, metadata });
            }
            // SAFETY: the same.
            Origin::Versioned => unsafe { abi::delete(self.managed::<DLManagedTensorVersioned>()) },
            // SAFETY: the same.
            Origin::Legacy => unsafe { abi::delete(self.managed::<DLManagedTensor>()) },
            Origin::Borrowed => {}
        }
    }
}

// Parts of tensors that own their memory (R1 to R4).

impl Handle {
    /// Turns a tensor into a part of it, which keeps the memory alive and has the same class. A part of
    /// a part keeps the memory alive directly, without the part in between.
    ///
    /// # Errors
    ///
    /// As for [`Checked::part`]. The handle is dropped then.
    pub(crate) fn into_part(self, cut: Cut<'_>) -> Result<Self, Error> {
        let (layout, memory) = self.checked().part(cut)?;
        let metadata = self.metadata;
        let whole = if self.origin() == Origin::Header { self } else { self.wrap() };
        // A header around a producer's tensor stays: handles are counted by it.
        let is_part = whole.owner::<Self>().is_some_and(|inner| inner.origin() == Origin::Header);
        let whole =
            if is_part { whole.take_own_owner().unwrap_or_else(|whole| whole) } else { whole };
        // SAFETY: elements of this handle's (R1), of their class or a weaker one: no other handle has
        // them than before (R4). `whole` keeps them alive (R2).
        let checked = unsafe { Checked::new(layout.borrow(), memory) };
        // SAFETY: the same; the flags say no more than this handle's.
        Ok(unsafe { Self::with_owner(whole, checked, metadata) })
    }

    /// A part of a shared tensor, which keeps the memory alive directly, also if it is a part of a part.
    ///
    /// # Errors
    ///
    /// As for [`Checked::part`].
    ///
    /// # Safety
    ///
    /// There is a header, and the class is not exclusive.
    pub(crate) unsafe fn shared_part(&self, cut: Cut<'_>) -> Result<Self, Error> {
        let checked = self.checked();
        let ndim = cut.ndim(checked.shape().len());
        // SAFETY: the caller's duty; elements of this handle's (R1).
        unsafe { self.shared(ndim, |lists| checked.part_in(lists, cut)) }
    }

    /// The same at one index of the first axis, compiled by itself.
    ///
    /// # Errors
    ///
    /// As for [`Checked::part`].
    ///
    /// # Safety
    ///
    /// As for [`shared_part`](Self::shared_part).
    pub(crate) unsafe fn shared_row(&self, index: usize) -> Result<Self, Error> {
        let checked = self.checked();
        let ndim = checked.shape().len().saturating_sub(1);
        // SAFETY: the caller's duty; elements of this handle's (R1).
        unsafe { self.shared(ndim, |lists| checked.row_in(lists, index)) }
    }

    /// # Safety
    ///
    /// As for [`shared_part`](Self::shared_part); `describe` returns elements of this handle's, of their class or a weaker one.
    #[inline(always)]
    unsafe fn shared(
        &self,
        ndim: usize,
        describe: impl for<'l> FnOnce(Lists<'l>) -> Result<(Layout<'l>, Memory), Error>,
    ) -> Result<Self, Error> {
        let inner = self.inner();
        let is_shared =
            |it: &&Self| it.origin() == Origin::Header && it.access() != Access::Exclusive;
        let whole = inner.filter(is_shared).unwrap_or(self);
        // SAFETY: with a header, and not exclusive (asked just now, or the caller's duty; R3).
        let whole = unsafe { whole.another() };
        // SAFETY: elements of this handle's (R1), of their class (R4), kept alive by `whole` (R2).
        let mut part =
            unsafe { Self::export(whole, Owns::Anything, ndim, |_, lists| describe(lists)) }?;
        part.metadata = part.metadata.with_memory_of(self.metadata);
        Ok(part)
    }
}
