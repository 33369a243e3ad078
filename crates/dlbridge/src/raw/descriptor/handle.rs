//! The owning handle behind `Tensor`: a descriptor and what validation found (R3).

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

/// Owns the memory of a tensor: a pointer to its descriptor, and what validation found.
///
/// Two words, which are passed in registers. No references, since the memory is freed while the handle
/// is still an argument of `drop`.
pub(crate) struct Handle {
    /// Has explicit strides, and does not change while the handle owns it (T1).
    pub(super) tensor: NonNull<DLTensor>,
    pub(super) marks: Marks,
}

/// The original tensor without strides, owned by the header that adds them. Only the fields of its
/// producer are read, never its parts.
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
        // SAFETY: alive, and not written while the handle owns it (T1).
        let fields = unsafe { descriptor.as_ref() };
        // SAFETY: the caller's duty (T2).
        if unsafe { is_ordinary(fields) } {
            let marks = Self::imported_marks(Marks::imported(flags), root, is_bound);
            return Ok(Self { tensor: descriptor, marks });
        }
        // SAFETY: the caller's duty, for the descriptor of this tensor.
        unsafe { Self::import_any(descriptor, flags, root, is_bound) }
    }

    /// The marks of a producer's tensor. A legacy one is read-only for lack of a flag.
    #[inline(always)]
    const fn imported_marks(marks: Marks, root: Root, is_bound: bool) -> Marks {
        let is_legacy = matches!(root, Root::Legacy);
        marks.with_root(root).with_bound(is_bound).with_legacy_read_only(is_legacy)
    }

    /// Validates any descriptor. A header adds strides to a descriptor without them.
    ///
    /// # Safety
    ///
    /// As for [`import`](Self::import); `root` is the kind of managed tensor around the descriptor.
    #[cold]
    unsafe fn import_any(
        tensor: NonNull<DLTensor>,
        flags: Flags,
        root: Root,
        is_bound: bool,
    ) -> Result<Self, Error> {
        // SAFETY: alive, and not written while the handle owns it (T1).
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

    /// A handle over a plain descriptor, which owns nothing.
    ///
    /// # Safety
    ///
    /// `marks` are the result of validating this same descriptor, which has strides and satisfies
    /// `SAFETY.md`'s list of trust while the handle lives. The handle is never exported.
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
                // SAFETY: of the ABI of the root, and alive (R2).
                let flags = Flags(unsafe { (*managed.as_ptr()).flags });
                (flags - Flags::NAMED) | named
            }
            Root::Legacy | Root::Borrowed => named,
        }
    }

    /// The managed tensor around the descriptor, in the ABI of the root. Not for a borrowed one.
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

    /// The fields of the producer's descriptor; `None` for memory that Rust owns.
    pub(crate) fn raw_fields(&self) -> Option<RawFields> {
        let unstrided = self.owner().map(|Unstrided(first)| first);
        match unstrided.or_else(|| self.behind()) {
            Some(first) => first.raw_fields(),
            // SAFETY: alive and of a known version since validation (R2).
            None => self.foreign().map(|tensor| unsafe { tensor.raw_fields() }),
        }
    }

    /// Gives up exclusive access, and the `IS_COPIED` flag: exported with that flag, the tensor would
    /// come back as exclusive.
    pub(crate) fn demote(&mut self) {
        let marks = &mut self.marks;
        if marks.access() == Access::Exclusive {
            *marks = marks.with(marks.flags() - Flags::IS_COPIED, Access::Shared);
        }
    }

    /// Makes the memory read-only, and clears `IS_COPIED`. Exclusive memory becomes frozen, since the
    /// only handle gives up writing.
    pub(crate) fn freeze(&mut self) {
        let marks = self.marks;
        let access = match marks.access() {
            Access::Exclusive | Access::Frozen => Access::Frozen,
            Access::Shared => Access::Shared,
        };
        let flags = (marks.flags() - Flags::IS_COPIED) | Flags::READ_ONLY;
        self.marks = marks.with(flags, access).with_legacy_read_only(false);
    }

    /// Changes the class of the memory.
    ///
    /// # Safety
    ///
    /// `access` is true of the elements (R4).
    pub(crate) unsafe fn set_access(&mut self, access: Access) {
        let marks = &mut self.marks;
        *marks = marks.with(marks.flags(), access);
    }

    /// Whether the memory is read-only only for lack of a flag in the legacy ABI.
    #[inline]
    pub(crate) fn is_legacy_read_only(&self) -> bool {
        self.marks.is_legacy_read_only()
    }

    /// Makes memory writable that is read-only for lack of a flag in the legacy ABI. Other memory is
    /// left unchanged.
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

    /// The owner, if it is of type `O` and the tensor never left Rust. Only for owners whose memory is
    /// not on the host: a reference to another owner could alias its elements.
    #[inline]
    pub(crate) fn owner<O: Any + Sync>(&self) -> Option<&O> {
        // SAFETY: the handle owns the header and is borrowed as long (R2).
        self.header().and_then(|header| unsafe { header::owner(header) })
    }

    /// Takes the owner out, if it is of type `O`.
    pub(crate) fn into_owner<O: Any>(self) -> Result<O, Self> {
        if self.may_hold_odd_bools() { Err(self) } else { self.take_owner() }
    }

    /// Takes the owner out, without a check of its values. A handle that shares its header has no owner
    /// to take.
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

    /// Whether other code may have written bytes that are no `bool` to memory that a `Vec<bool>` may own.
    /// For all other elements, any bytes are values (`Element`'s duty).
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
