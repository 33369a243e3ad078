//! Exports: a header is allocated around an owner or a handle, and its descriptor goes to a consumer (R3).

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned};

use super::foreign::Foreign;
use super::handle::Handle;
use super::header::{self, Destroy};
use super::marks::{Marks, Root};
use super::parts::{Memory, Parts};
use super::release::Nests;
use crate::layout::{Layout, Lists};
use crate::{Access, DescriptorError, Error, Flags, MAX_RANK};

impl Handle {
    /// Moves an owner into a header that exports what `describe` says.
    ///
    /// # Safety
    ///
    /// The memory that `describe` returns has the elements of the layout that it returns, of this
    /// class (R1, R4), while the owner lives and no other code uses it.
    #[inline]
    pub(crate) unsafe fn export<O: Send + 'static>(
        owner: O,
        rank: usize,
        describe: impl for<'l> FnOnce(&mut O, Lists<'l>) -> Result<(Layout<'l>, Memory), Error>,
    ) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        unsafe { Self::export_owner(owner, Destroy::plain(), rank, describe) }
    }

    /// As [`export`](Self::export), for an owner that is destroyed in its own way.
    ///
    /// # Safety
    ///
    /// As for [`export`](Self::export).
    #[inline]
    pub(crate) unsafe fn export_owner<O: Send + 'static>(
        owner: O,
        destroy: Destroy<O>,
        rank: usize,
        describe: impl for<'l> FnOnce(&mut O, Lists<'l>) -> Result<(Layout<'l>, Memory), Error>,
    ) -> Result<Self, Error> {
        if rank > MAX_RANK {
            return Err(DescriptorError::RankOutOfRange {
                ndim: rank.try_into().unwrap_or(i32::MAX),
            }
            .into());
        }
        // SAFETY: the caller's duty.
        let (header, marks) = unsafe { header::allocate(owner, destroy, rank, describe) }?;
        Ok(Self { tensor: header::tensor_of(header), marks })
    }

    /// Exports the tensor as a versioned managed tensor.
    pub(crate) fn into_versioned(self) -> NonNull<DLManagedTensorVersioned> {
        match self.foreign() {
            Some(Foreign::Versioned(tensor)) if self.is_plain() => {
                std::mem::forget(self);
                tensor
            }
            _ => {
                let handle = self.into_header();
                // SAFETY: the handle owned the header and is forgotten (R3).
                unsafe { header::expose(handle.managed(), handle.flags()) }
            }
        }
    }

    /// Exports the tensor as a legacy managed tensor. The caller has checked that no flag is lost
    /// (`Tensor::check_legacy`).
    pub(crate) fn into_legacy(self) -> NonNull<DLManagedTensor> {
        match self.foreign() {
            Some(Foreign::Legacy(tensor)) if self.is_plain() => {
                std::mem::forget(self);
                tensor
            }
            _ => {
                let handle = self.into_header();
                // SAFETY: the handle owned the header and is forgotten (R3).
                unsafe { header::expose_legacy(handle.managed(), &handle.parts()) }
            }
        }
    }

    /// Whether the producer's own descriptor can be exported: it equals the parts, and has what real
    /// consumers need, namely explicit strides, a deleter, and a byte offset folded into the pointer.
    /// The deleter of a tensor that a binding drops must not be called directly.
    fn is_plain(&self) -> bool {
        !self.marks.is_bound()
            && self.raw_fields().is_some_and(|raw| {
                let parts = self.parts();
                // A legacy descriptor has no flags.
                let says_flags = raw.version.is_none() || raw.flags == parts.flags;
                let is_true = raw.byte_offset == parts.byte_offset && says_flags;
                is_true && raw.has_deleter && (raw.has_strides || parts.shape().is_empty())
            })
    }

    /// A handle with a header of its own, for an export.
    #[inline]
    fn into_header(self) -> ManuallyDrop<Self> {
        let is_own = self.header().is_some() && self.is_unique();
        ManuallyDrop::new(if is_own { self } else { self.wrap() })
    }

    /// The same tensor with a header, which other handles can share. It no longer counts as a copy made
    /// for one consumer.
    #[inline]
    pub(crate) fn with_header(self) -> Self {
        let mut handle = if self.root() == Root::Header { self } else { self.wrap() };
        let marks = &mut handle.marks;
        *marks = marks.with(marks.flags() - Flags::IS_COPIED, marks.access());
        handle
    }

    /// A new header around a foreign tensor, or around a tensor whose header is shared.
    pub(super) fn wrap(mut self) -> Self {
        if self.is_returned() {
            return self.wrap_returned();
        }
        self.marks = self.marks.with_kept();
        // SAFETY: alive as long as the handle, which moves but keeps it (R2).
        let tensor = unsafe { self.tensor.as_ref() };
        // SAFETY: validated; alive as long as the owner, which is this handle (R2).
        let parts = unsafe { Parts::described(tensor, self.marks.access(), self.flags()) };
        let marks = self.marks;
        // SAFETY: the same memory, alive as long as the owner, which is this handle (R2).
        unsafe { Self::around(self, parts, marks) }
    }

    /// A header around a handle, or around another owner of its memory.
    ///
    /// # Safety
    ///
    /// `parts` and `marks` are those of the handle.
    pub(crate) unsafe fn around<O: Nests>(handle: O, parts: Parts<'_>, marks: Marks) -> Self {
        let destroy = Destroy::nested::<O>().unwrap_or(Destroy::plain());
        // SAFETY: the caller's duty; the handle keeps what it describes alive (R2, R4).
        let header = unsafe { Self::share(handle, destroy, parts, parts.access, parts.flags) };
        let mut header = header.expect("nothing in it fails");
        header.marks = header.marks.beside(marks);
        header
    }

    /// A new header over the memory of `parts`, which `owner` keeps alive.
    ///
    /// # Safety
    ///
    /// `owner` keeps the memory of `parts` alive, and `access` is true of that memory (R4).
    pub(crate) unsafe fn share<O: Send + 'static>(
        owner: O,
        destroy: Destroy<O>,
        parts: Parts<'_>,
        access: Access,
        flags: Flags,
    ) -> Result<Self, Error> {
        let Parts { data, byte_offset, device, .. } = parts;
        let (layout, memory) =
            (parts.layout(), Memory { data, byte_offset, device, flags, access });
        // SAFETY: `parts` satisfies R1, and the rest is the caller's duty.
        unsafe {
            Self::export_owner(owner, destroy, layout.shape().len(), |_, lists| {
                Ok((lists.copy(layout), memory))
            })
        }
    }
}
