//! A checked description of tensor memory: what the gate makes and everything else reads.
//! Checking does not belong here (see `parse`), nor does reading elements.
//! Invariants: R1 and R2 of this folder.

use std::mem::MaybeUninit;

use crate::{Access, DType, Device, Error, Flags, layout};

/// A checked description of tensor memory, borrowed from its owner.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    /// Element `[0, 0, ...]`, byte offset applied; a handle on devices without addresses.
    pub(super) data: *mut u8,
    /// What is left of the byte offset: 0 unless `data` is a handle.
    pub(super) byte_offset: u64,
    pub(super) dtype: DType,
    pub(super) device: Device,
    pub(super) flags: Flags,
    pub(super) access: Access,
    pub(super) shape: &'a [i64],
    pub(super) strides: &'a [i64],
    pub(super) len: usize,
}

// SAFETY: it lends plain elements for as long as their owner is borrowed; whoever forms references
// to them answers for that (R5).
unsafe impl Send for Parts<'_> {}
// SAFETY: the same.
unsafe impl Sync for Parts<'_> {}

impl<'a> Parts<'a> {
    pub(crate) fn data(&self) -> *mut u8 {
        self.data
    }

    pub(crate) fn byte_offset(&self) -> u64 {
        self.byte_offset
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn flags(&self) -> Flags {
        self.flags
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn shape(&self) -> &'a [i64] {
        self.shape
    }

    pub(crate) fn strides(&self) -> &'a [i64] {
        self.strides
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn nbytes(&self) -> usize {
        // Only a broadcast array that is borrowed may have more bytes than fit.
        layout::nbytes(self.len, self.dtype, self.flags).unwrap_or(usize::MAX)
    }

    pub(crate) fn is_contiguous(&self) -> bool {
        layout::is_contiguous(self.shape, self.strides)
    }

    /// The same memory with another class.
    ///
    /// # Safety
    ///
    /// `access` is not a stronger class than what the memory has (R4).
    pub(super) unsafe fn with_access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    pub(crate) fn check_dtype(&self, wanted: DType) -> Result<(), Error> {
        if self.dtype == wanted {
            Ok(())
        } else {
            Err(Error::DTypeMismatch { found: self.dtype, wanted })
        }
    }

    pub(crate) fn check_host(&self) -> Result<(), Error> {
        if self.device.is_host_accessible() {
            Ok(())
        } else {
            Err(Error::NotHostAccessible { device: self.device })
        }
    }

    pub(crate) fn check_contiguous(&self) -> Result<(), Error> {
        match layout::first_gap(self.shape, self.strides) {
            None => Ok(()),
            Some((axis, wanted)) => {
                Err(Error::NotContiguous { axis, stride: self.strides[axis], wanted })
            }
        }
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.flags.contains(Flags::READ_ONLY) { Err(Error::ReadOnly) } else { Ok(()) }
    }
}

/// Parts beside what owns their memory, which is freed while this value is still being passed
/// around: `drop(handle)` frees what the references in its argument point to. References may not
/// dangle in an argument, but what stands in a `MaybeUninit` is none to the language.
#[derive(Clone, Copy)]
pub(super) struct Kept(MaybeUninit<Parts<'static>>);

impl Kept {
    #[inline]
    pub(super) fn new(parts: Parts<'static>) -> Self {
        Self(MaybeUninit::new(parts))
    }

    /// # Safety
    ///
    /// What the parts borrow is alive for `'a`.
    #[inline]
    pub(super) unsafe fn get<'a>(self) -> Parts<'a> {
        // SAFETY: `new` is the only way to make one.
        unsafe { self.0.assume_init() }
    }
}
