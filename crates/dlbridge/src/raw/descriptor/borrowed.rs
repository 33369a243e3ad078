//! A checked description of borrowed memory, with its own shape and strides (R1, R2).

use std::marker::PhantomData;

use dlbridge_sys::DLTensor;

use super::checked::{Checked, Memory};
use super::validate::{checked_with, validate};
use crate::layout::OwnedLayout;
use crate::{Access, Error, Flags};

/// Describes memory that is borrowed for `'a`. No heap up to rank 8.
pub(crate) struct Borrowed<'a> {
    layout: OwnedLayout,
    memory: Memory,
    lifetime: PhantomData<&'a ()>,
}

// SAFETY: it gives the access of a slice of plain elements (R9).
unsafe impl Send for Borrowed<'_> {}
// SAFETY: the same.
unsafe impl Sync for Borrowed<'_> {}

impl<'a> Borrowed<'a> {
    /// # Safety
    ///
    /// For `'a`, the memory has the elements of the layout, of this class (R1, R2, R4).
    #[inline]
    pub(crate) unsafe fn new(layout: OwnedLayout, memory: Memory) -> Self {
        Self { layout, memory, lifetime: PhantomData }
    }

    /// Describes the memory of `checked` for the same lifetime.
    pub(crate) fn from_checked(checked: Checked<'a>) -> Self {
        // SAFETY: borrowed for `'a` (R2).
        unsafe { Self::copied(checked) }
    }

    /// Describes the memory of `checked`, with a copy of their shape and strides.
    ///
    /// # Safety
    ///
    /// The elements of `checked` are borrowed for `'a`.
    pub(crate) unsafe fn copied(checked: Checked<'_>) -> Self {
        let Checked { data, byte_offset, device, flags, access, .. } = checked;
        let memory = Memory { data, byte_offset, device, flags, access };
        // SAFETY: the memory of checked parts (R1); its lifetime is the caller's duty.
        unsafe { Self::new(checked.layout().into(), memory) }
    }

    /// The same memory, only read through this description. Whoever made a copy of it made none for
    /// this borrow.
    #[inline]
    pub(crate) fn into_read_only(mut self) -> Self {
        let Memory { flags, access, .. } = &mut self.memory;
        *flags = (*flags - Flags::IS_COPIED) | Flags::READ_ONLY;
        *access = access.to_read();
        self
    }

    /// Changes the class.
    ///
    /// # Safety
    ///
    /// For `'a`, the elements are of this class (R4).
    #[inline]
    pub(crate) unsafe fn set_access(&mut self, access: Access) {
        self.memory.access = access;
    }

    /// Validates a foreign descriptor, without owning it.
    ///
    /// # Safety
    ///
    /// `tensor` satisfies `SAFETY.md`'s list of trust for `'a`.
    pub(crate) unsafe fn from_raw(tensor: &DLTensor) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        let strides = unsafe { validate(tensor, Flags::NONE) }?;
        // SAFETY: validated just now; the rest is the caller's duty.
        let checked = unsafe { checked_with(tensor, &strides, Flags::NONE) };
        // SAFETY: the caller's duty.
        Ok(unsafe { Self::copied(checked) })
    }

    #[inline]
    pub(crate) fn checked(&self) -> Checked<'_> {
        // SAFETY: the duty of the caller of `new`.
        unsafe { Checked::new(self.layout.borrow(), self.memory) }
    }
}
