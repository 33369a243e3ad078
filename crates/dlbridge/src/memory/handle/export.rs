//! Exports: a header is allocated around an owner or a handle, and its descriptor goes to a consumer (R3).
//! While handles share a header, one consumer at a time has its second descriptor.
//! Invariant: R3: what is lent counts as a handle.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned, DLTensor};

use super::Handle;
use super::abi::Abi;
use super::header::{self, Header, LENT, LENT_AT, LENT_NDIM, Lent, Owns};
use super::metadata::{Metadata, Origin};
use crate::layout::{Layout, Lists};
use crate::memory::descriptor::Borrowed;
use crate::memory::descriptor::checked::{Checked, Memory, describe};
use crate::{DescriptorError, Error, Flags, MAX_NDIM};

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
        owns: Owns,
        ndim: usize,
        describe: impl for<'l> FnOnce(&mut O, Lists<'l>) -> Result<(Layout<'l>, Memory), Error>,
    ) -> Result<Self, Error> {
        if ndim > MAX_NDIM {
            return Err(DescriptorError::NdimOutOfRange {
                ndim: ndim.try_into().unwrap_or(i32::MAX),
            }
            .into());
        }
        // SAFETY: the caller's duty.
        let (header, metadata) = unsafe { header::allocate(owner, owns, ndim, describe) }?;
        Ok(Self { tensor: header::tensor_of(header), metadata })
    }

    /// As [`export`](Self::export), with the header in memory of the owner's own.
    ///
    /// # Safety
    ///
    /// As for [`header::within`].
    #[inline]
    pub(crate) unsafe fn export_within<O: Send + 'static>(
        place: NonNull<u8>,
        owner: O,
        ndim: usize,
        describe: impl for<'l> FnOnce(&mut O, Lists<'l>) -> Result<(Layout<'l>, Memory), Error>,
    ) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        let (header, metadata) = unsafe { header::within(place, owner, ndim, describe) }?;
        Ok(Self { tensor: header::tensor_of(header), metadata })
    }

    /// Exports the tensor as a versioned managed tensor.
    pub(crate) fn into_versioned(self) -> NonNull<DLManagedTensorVersioned> {
        let this = self.given(None);
        if this.origin() == Origin::Versioned && this.is_plain() {
            return ManuallyDrop::new(this).managed();
        }
        if let (Some(header), false) = (this.header(), this.is_unique()) {
            // SAFETY: this is a handle of the header, and is forgotten if that is lent (R3).
            if let Some(lent) = unsafe { lend(header, &this.checked()) } {
                std::mem::forget(this);
                return lent;
            }
        }
        let handle = this.into_header();
        // SAFETY: the handle owned the header and is forgotten (R3).
        unsafe { header::expose(handle.managed(), handle.flags()) }
    }

    /// Exports the tensor for code that only keeps it and calls the deleter: its header may be that
    /// of other handles.
    pub(crate) fn into_keeper(self) -> NonNull<DLManagedTensorVersioned> {
        let this = self.given(None);
        match this.header() {
            Some(_) => ManuallyDrop::new(this).managed(),
            None => this.into_versioned(),
        }
    }

    /// Exports the tensor as a legacy managed tensor. The caller has checked that no flag is lost
    /// (`Tensor::check_legacy`).
    pub(crate) fn into_legacy(self) -> NonNull<DLManagedTensor> {
        let this = self.given(None);
        if this.origin() == Origin::Legacy && this.is_plain() {
            return ManuallyDrop::new(this).managed();
        }
        let handle = this.into_header();
        // SAFETY: the handle owned the header and is forgotten (R3).
        unsafe { header::expose_legacy(handle.managed()) }
    }

    /// Whether the producer's own descriptor can be exported: it says what this handle says, and has what real
    /// consumers need, namely explicit strides, a deleter, and a byte offset folded into the pointer.
    /// The deleter of a tensor that a binding drops must not be called directly.
    fn is_plain(&self) -> bool {
        !self.metadata.is_bound()
            && self.raw_fields().is_some_and(|raw| {
                let checked = self.checked();
                // A legacy descriptor has no flags.
                let says_flags = raw.version.is_none() || raw.flags == checked.flags;
                let is_true = raw.byte_offset == checked.byte_offset && says_flags;
                is_true && raw.has_deleter && (raw.has_strides || checked.shape().is_empty())
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
        let mut handle = if self.origin() == Origin::Header { self } else { self.wrap() };
        let metadata = &mut handle.metadata;
        *metadata = metadata.with(metadata.flags() - Flags::IS_COPIED, metadata.access());
        handle
    }

    /// A new header around a foreign tensor, or around a tensor whose header is shared.
    pub(super) fn wrap(mut self) -> Self {
        if self.is_returned() {
            // SAFETY: a copy, of memory that the new header's owner keeps alive (R2).
            let described = unsafe { Borrowed::copied(self.checked()) };
            // SAFETY: described just now (R2).
            return unsafe { self.wrap_returned(described) };
        }
        self.metadata = self.metadata.with_chained();
        // SAFETY: alive as long as the handle, which moves but keeps it (R2).
        let tensor = unsafe { self.tensor.as_ref() };
        // SAFETY: validated; alive as long as the owner, which is this handle (R2).
        let checked = unsafe { Checked::described(tensor, self.metadata.access(), self.flags()) };
        let metadata = self.metadata;
        // SAFETY: the same memory, alive as long as the owner, which is this handle (R2).
        unsafe { Self::with_owner(self, checked, metadata) }
    }

    /// A header around a handle, or around another owner of its memory.
    ///
    /// # Safety
    ///
    /// `checked` and `metadata` are those of the handle.
    pub(crate) unsafe fn with_owner<O: Send + 'static>(
        handle: O,
        checked: Checked<'_>,
        metadata: Metadata,
    ) -> Self {
        // SAFETY: the caller's duty; the handle keeps what it describes alive (R2, R4).
        let header = unsafe { Self::of_owner(handle, Owns::Anything, checked) };
        let mut header = header.unwrap_or_else(|error| error.impossible());
        header.metadata = header.metadata.with_memory_of(metadata);
        header
    }

    /// A new header over the memory of `checked`, which `owner` keeps alive.
    ///
    /// # Safety
    ///
    /// `owner` keeps the memory of `checked` alive, of the class that `checked` states (R4).
    pub(crate) unsafe fn of_owner<O: Send + 'static>(
        owner: O,
        owns: Owns,
        checked: Checked<'_>,
    ) -> Result<Self, Error> {
        let (layout, memory) = (checked.layout(), checked.memory());
        // SAFETY: `checked` satisfies R1, and the rest is the caller's duty.
        unsafe {
            Self::export(owner, owns, layout.shape().len(), |_, lists| {
                Ok((lists.copy(layout), memory))
            })
        }
    }
}

/// Exports a header that other handles share by its second descriptor, unless a consumer has it.
///
/// # Safety
///
/// The caller has a handle, and `checked` describes its memory. With `Some`, the caller forgets the
/// handle: the export counts in its place.
#[inline]
pub(crate) unsafe fn lend(
    header: NonNull<Header>,
    checked: &Checked<'_>,
) -> Option<NonNull<DLManagedTensorVersioned>> {
    let (shape, strides) = (checked.shape(), checked.strides());
    if shape.len() > LENT_NDIM {
        return None;
    }
    // SAFETY: alive, by the caller's duty; no consumer writes the mark (R6).
    let is_lent = unsafe { &(*header.as_ptr()).is_lent };
    // Acquire: the last consumer had done with it before.
    if is_lent.swap(true, Ordering::Acquire) {
        return None;
    }
    let lent = header.as_ptr().wrapping_byte_add(LENT_AT).cast::<Lent>();
    let list_at = |offset| lent.wrapping_byte_add(offset).cast::<i64>();
    let tensor = DLTensor {
        shape: list_at(std::mem::offset_of!(Lent, shape)),
        strides: list_at(std::mem::offset_of!(Lent, strides)),
        ..describe(checked)
    };
    // A copy of a known length, instead of a call of `memcpy`.
    let filled = |list: &[i64]| std::array::from_fn(|axis| list.get(axis).copied().unwrap_or(0));
    let managed = Abi::new(header.as_ptr().cast::<c_void>(), LENT, checked.flags, tensor);
    let content = Lent { managed, shape: filled(shape), strides: filled(strides) };
    // SAFETY: a field of the header, which no consumer has now (asked just now; R6).
    unsafe { lent.write(content) };
    NonNull::new(lent.cast())
}
