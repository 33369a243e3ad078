//! The owning handle of a tensor: where it came from, and how it is released.
//! Reading elements does not belong here.
//! Invariant: R3 of this folder.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned, DLTensor};

use super::foreign::{Foreign, RawFields};
use super::header::{self, Header, TENSOR_AT};
use super::marks::{Marks, Root};
use super::parts::Parts;
use super::validate::{is_ordinary, validate_any};
use crate::{Access, Error, Flags, TypeCode};

/// Owns a tensor's memory and describes it: by its descriptor, and by what validation found out.
///
/// Two words, which are moved in registers, and free of references, since what they would point to
/// is freed while the handle is still an argument of `drop`.
pub(crate) struct Handle {
    /// With explicit strides; does not change as long as the handle has it (trust T1).
    pub(super) tensor: NonNull<DLTensor>,
    pub(super) marks: Marks,
}

/// A handle of a descriptor without strides, kept by the header that describes the same with them.
/// It is asked for its producer's fields, never for its parts.
pub(crate) struct Unstrided(pub(super) Handle);

const _: () = assert!(size_of::<Option<Handle>>() == 2 * size_of::<usize>());

// SAFETY: a header's owner is `Send`, and is not touched before it is dropped; a foreign deleter
// may be called on any thread (trust T4). Elements are plain data.
unsafe impl Send for Handle {}
// SAFETY: `&Handle` gives access to metadata and elements only, both free of cells (R9).
unsafe impl Sync for Handle {}

impl Handle {
    /// Validates a foreign tensor. On success the handle owns it; on failure the
    /// caller still does. If `is_bound`, a language binding drops the tensor (see `binding`).
    ///
    /// # Safety
    ///
    /// The tensor is owned by the caller and satisfies `SAFETY.md`'s list of trust.
    #[inline(always)]
    pub(crate) unsafe fn import(tensor: Foreign, is_bound: bool) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        let (flags, descriptor) = unsafe { tensor.open() }?;
        let root = match tensor {
            Foreign::Versioned(_) => Root::Versioned,
            Foreign::Legacy(_) => Root::Legacy,
        };
        // SAFETY: alive, and not written as long as the handle has it (T1).
        let fields = unsafe { descriptor.as_ref() };
        // SAFETY: the caller's duty (T2).
        if unsafe { is_ordinary(fields) } {
            let marks = Self::imported_marks(Marks::imported(flags), root, is_bound);
            return Ok(Self { tensor: descriptor, marks });
        }
        // SAFETY: the caller's duty, and of this very tensor.
        unsafe { Self::import_any(descriptor, flags, root, is_bound) }
    }

    /// The marks of a producer's tensor. One of DLPack before 1.0 is read-only for want of a flag.
    #[inline(always)]
    const fn imported_marks(marks: Marks, root: Root, is_bound: bool) -> Marks {
        let is_legacy = matches!(root, Root::Legacy);
        marks.with_root(root).with_bound(is_bound).with_legacy_read_only(is_legacy)
    }

    /// Validates any descriptor. One without strides is described again, with them, by
    /// a header.
    ///
    /// # Safety
    ///
    /// As for [`import`](Self::import); the descriptor is part of what `root` says.
    #[cold]
    unsafe fn import_any(
        tensor: NonNull<DLTensor>,
        flags: Flags,
        root: Root,
        is_bound: bool,
    ) -> Result<Self, Error> {
        // SAFETY: alive, and not written as long as the handle has it (T1).
        let fields = unsafe { tensor.as_ref() };
        // SAFETY: the caller's duty (T2).
        let validated = unsafe { validate_any(fields, flags) }?;
        let mut this =
            Self { tensor, marks: Self::imported_marks(validated.marks, root, is_bound) };
        if validated.strides.is_none() {
            return Ok(this);
        }
        this.marks = this.marks.with_kept();
        let marks = this.marks;
        // SAFETY: validated just now; alive as long as `this` (R2).
        let parts = unsafe { validated.parts(fields, this.flags()) };
        // SAFETY: the same memory, alive as long as the owner, which is `this` (R2).
        Ok(unsafe { Self::around(Unstrided(this), parts, marks) })
    }

    /// A handle of a plain descriptor, which owns nothing.
    ///
    /// # Safety
    ///
    /// Validation found out `marks` of this very descriptor, which has strides and satisfies
    /// `SAFETY.md`'s list of trust as long as the handle lives. It is never given away.
    #[inline(always)]
    pub(crate) unsafe fn borrowed(tensor: NonNull<DLTensor>, marks: Marks) -> Self {
        Self { tensor, marks: marks.with_root(Root::Borrowed) }
    }

    #[inline(always)]
    pub(crate) fn parts(&self) -> Parts<'_> {
        // SAFETY: alive as long as the handle (R2), and not written (trust T1).
        let tensor = unsafe { self.tensor.as_ref() };
        // SAFETY: validated, or `header` wrote it; alive as long (R2).
        unsafe { Parts::described(tensor, self.marks.access(), self.flags()) }
    }

    #[inline]
    pub(crate) fn root(&self) -> Root {
        self.marks.root()
    }

    #[inline]
    pub(crate) fn access(&self) -> Access {
        self.marks.access()
    }

    #[inline]
    pub(super) fn flags(&self) -> Flags {
        let named = self.marks.flags();
        match self.root() {
            Root::Header | Root::Versioned => {
                let managed = self.managed::<DLManagedTensorVersioned>();
                // SAFETY: what the root says it is, alive (R2).
                let flags = Flags(unsafe { (*managed.as_ptr()).flags });
                (flags - Flags::NAMED) | named
            }
            Root::Legacy | Root::Borrowed => named,
        }
    }

    /// What the tensor is a part of, in the ABI that the root says. Not for a lent one.
    #[inline]
    pub(crate) fn managed<A>(&self) -> NonNull<A> {
        let offset = if self.root() == Root::Legacy { 0 } else { TENSOR_AT };
        const { assert!(std::mem::offset_of!(DLManagedTensor, dl_tensor) == 0) };
        // SAFETY: inside the same allocation, of which the pointer was made (R3).
        unsafe { self.tensor.byte_sub(offset) }.cast()
    }

    #[inline]
    pub(crate) fn header(&self) -> Option<NonNull<Header>> {
        (self.root() == Root::Header).then(|| self.managed())
    }

    pub(crate) fn foreign(&self) -> Option<Foreign> {
        match self.root() {
            Root::Versioned => Some(Foreign::Versioned(self.managed())),
            Root::Legacy => Some(Foreign::Legacy(self.managed())),
            Root::Header | Root::Borrowed => None,
        }
    }

    /// Whether the memory is a producer's.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        self.marks.is_foreign()
    }

    /// What the producer's descriptor says; `None` for memory that Rust owns.
    pub(crate) fn raw_fields(&self) -> Option<RawFields> {
        let unstrided = self.owner().map(|Unstrided(first)| first);
        match unstrided.or_else(|| self.behind()) {
            Some(first) => first.raw_fields(),
            // SAFETY: alive and of a known version since validation (R2).
            None => self.foreign().map(|tensor| unsafe { tensor.raw_fields() }),
        }
    }

    /// Gives up exclusive access, and the claim to be a copy made for one consumer: given away
    /// with that claim, it would come back as exclusive.
    pub(crate) fn demote(&mut self) {
        let marks = &mut self.marks;
        if marks.access() == Access::Exclusive {
            *marks = marks.with(marks.flags() - Flags::IS_COPIED, Access::Shared);
        }
    }

    /// Makes the memory read-only, by decision: no longer for want of a flag alone, and not a copy made
    /// for one consumer. Exclusive memory becomes frozen, since the only handle gives up writing.
    pub(crate) fn freeze(&mut self) {
        let marks = self.marks;
        let access = match marks.access() {
            Access::Exclusive | Access::Frozen => Access::Frozen,
            Access::Shared => Access::Shared,
        };
        let flags = (marks.flags() - Flags::IS_COPIED) | Flags::READ_ONLY;
        self.marks = marks.with(flags, access).with_legacy_read_only(false);
    }

    /// Says that the memory is of another class.
    ///
    /// # Safety
    ///
    /// `access` is true of the elements (R4).
    pub(crate) unsafe fn set_access(&mut self, access: Access) {
        let marks = &mut self.marks;
        *marks = marks.with(marks.flags(), access);
    }

    /// Whether the memory is read-only only because its producer's ABI cannot say otherwise.
    #[inline]
    pub(crate) fn is_legacy_read_only(&self) -> bool {
        self.marks.is_legacy_read_only()
    }

    /// Says that memory may be written that is read-only for want of a flag. Other memory stays as
    /// it is.
    ///
    /// # Safety
    ///
    /// The producer permits writing (T8).
    pub(crate) unsafe fn assume_writable(&mut self) {
        let marks = self.marks;
        if marks.is_legacy_read_only() {
            let flags = marks.flags() - Flags::READ_ONLY;
            self.marks = marks.with(flags, marks.access()).with_legacy_read_only(false);
        }
    }

    /// The owner, if this is an export of one of type `O` that never left Rust. For owners that
    /// lend no memory of the host: a reference to those could be one to elements, too.
    #[inline]
    pub(crate) fn owner<O: Any + Sync>(&self) -> Option<&O> {
        // SAFETY: the handle owns the header and is borrowed as long (R2).
        self.header().and_then(|header| unsafe { header::owner(header) })
    }

    /// Takes the owner back out, if this is an export of one of type `O`.
    pub(crate) fn into_owner<O: Any>(self) -> Result<O, Self> {
        if self.may_hold_odd_bools() { Err(self) } else { self.take_owner() }
    }

    /// Takes the owner out whatever others wrote. For a handle that shares its header, there is
    /// none to take.
    pub(crate) fn take_owner<O: Any>(self) -> Result<O, Self> {
        if !self.is_unique() {
            return Err(self);
        }
        let handle = ManuallyDrop::new(self);
        let Some(header) = handle.header() else {
            return Err(ManuallyDrop::into_inner(handle));
        };
        // SAFETY: the handle owned the header and is forgotten; its parts were borrowed from it
        // (R3).
        unsafe { header::take_owner(header) }.map_err(|_| ManuallyDrop::into_inner(handle))
    }

    /// Whether others may have left bytes that are no `bool` in memory whose owner may be a
    /// `Vec<bool>`. Of all other elements any bytes are values (`Element`'s duty).
    fn may_hold_odd_bools(&self) -> bool {
        let parts = self.parts();
        let is_bool = parts.dtype().code == TypeCode::BOOL;
        parts.access == Access::Shared && is_bool && parts.device.is_host_accessible()
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
        Self { tensor: self.tensor, marks: self.marks }
    }
}
