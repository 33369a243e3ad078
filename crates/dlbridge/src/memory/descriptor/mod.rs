//! Plain descriptors: validated, checked, borrowed. No code here accesses elements or owns memory.

pub(crate) mod checked;
pub(crate) mod validate;

use dlbridge_sys::DLTensor;

use self::checked::Memory;
use self::validate::validate;
use crate::layout::{Layout, OwnedLayout};
use crate::{Access, Error, Flags};

pub(crate) use self::checked::Checked;

// A checked description of borrowed memory, with its own shape and strides, or with those that are
// borrowed with it (R1, R2).

/// Describes memory that is borrowed for `'a`. No heap up to 8 axes.
pub(crate) struct Borrowed<'a> {
    layout: Extents<'a>,
    memory: Memory,
}

/// A layout with lists of its own, or with those of the tensor that is borrowed.
enum Extents<'a> {
    Own(OwnedLayout),
    Lent(Layout<'a>),
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
        Self { layout: Extents::Own(layout), memory }
    }

    /// Describes the memory of `checked` for the same lifetime. Nothing is copied.
    #[inline]
    pub(crate) fn from_checked(checked: Checked<'a>) -> Self {
        let layout = Extents::Lent(checked.layout());
        Self { layout, memory: checked.memory() }
    }

    /// Describes the memory of `checked`, with a copy of their shape and strides.
    ///
    /// # Safety
    ///
    /// The elements of `checked` are borrowed for `'a`.
    pub(crate) unsafe fn copied(checked: Checked<'_>) -> Self {
        // SAFETY: the memory of checked parts (R1); its lifetime is the caller's duty.
        unsafe { Self::new(checked.layout().into(), checked.memory()) }
    }

    /// The same memory, only read through this description. Clears `IS_COPIED`: the copy was made for the lender, not for
    /// this borrower.
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
        let mut room = None;
        // SAFETY: the caller's duty.
        let checked = unsafe { validate(tensor, Flags::NONE, &mut room) }?;
        // SAFETY: the caller's duty.
        Ok(unsafe { Self::copied(checked) })
    }

    #[inline]
    pub(crate) fn checked(&self) -> Checked<'_> {
        let layout = match &self.layout {
            Extents::Own(layout) => layout.borrow(),
            Extents::Lent(layout) => *layout,
        };
        // SAFETY: the duty of the caller of `new`, or checked for `'a`.
        unsafe { Checked::new(layout, self.memory) }
    }
}
