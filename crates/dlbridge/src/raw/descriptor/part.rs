//! Parts of tensors: moves the data pointer by what `layout::Cut` measured (R1 to R4).

use super::Handle;
use super::borrowed::Borrowed;
use super::marks::Root;
use super::parts::{Memory, Parts};
use crate::layout::{self, Cut, OwnedLayout};
use crate::{Access, DescriptorError, Error, Flags};

impl Parts<'_> {
    /// A part of these elements: its layout, and its location in this memory.
    ///
    /// Broadcast elements are read-only, as NumPy has them: several indices reach one element.
    ///
    /// # Errors
    ///
    /// Those of [`Layout::part`](layout::Layout::part); [`Error::SubByte`] where the part begins inside
    /// a byte.
    fn part(&self, cut: Cut<'_>) -> Result<(OwnedLayout, Memory), Error> {
        let (layout, offset) = self.layout().part(cut)?.into_inner();
        let Parts { data, byte_offset, device, mut flags, mut access, .. } = *self;
        if let Cut::Broadcast(_) = cut {
            flags |= Flags::READ_ONLY;
            access = if access == Access::Exclusive { Access::Frozen } else { access };
        }
        let bytes = layout.borrow().unit().offset(offset);
        let bytes = bytes.ok_or(Error::SubByte { padded: false, dtype: self.dtype() })?;
        let (data, byte_offset) = if device.kind.has_addresses() {
            (data.wrapping_offset(bytes), byte_offset)
        } else {
            let moved = byte_offset.checked_add_signed(bytes as i64);
            (data, moved.ok_or(DescriptorError::AddressOverflow { byte_offset })?)
        };
        Ok((layout, Memory { data, byte_offset, device, flags, access }))
    }

    /// Whether elements under different indices have no byte in common.
    pub(crate) fn check_disjoint(&self) -> Result<(), Error> {
        if self.layout().unit().is_packed() {
            return Err(Error::SubByte { padded: false, dtype: self.dtype() });
        }
        match layout::may_overlap(self.shape(), self.strides()) {
            true => Err(Error::Overlapping),
            false => Ok(()),
        }
    }
}

impl<'a> Borrowed<'a> {
    /// A part of `parts`, for the same lifetime.
    ///
    /// # Errors
    ///
    /// As for [`Parts::part`].
    #[inline]
    pub(crate) fn part_of(parts: &Parts<'a>, cut: Cut<'_>) -> Result<Self, Error> {
        let (layout, memory) = parts.part(cut)?;
        // SAFETY: elements of `parts`, borrowed for `'a` (R1, R2), and of their class or a weaker one
        // (R4).
        Ok(unsafe { Self::new(layout, memory) })
    }

    /// A part of memory that is only read through this description.
    ///
    /// # Errors
    ///
    /// As for [`Parts::part`].
    pub(crate) fn part(&self, cut: Cut<'_>) -> Result<Self, Error> {
        let (layout, memory) = self.parts().part(cut)?;
        // SAFETY: as above, of what is borrowed for `'a`.
        Ok(unsafe { Self::new(layout, memory) })
    }

    /// The parts of an axis before and from an index, which share no byte.
    ///
    /// # Errors
    ///
    /// As for [`Parts::part`]; [`Error::Overlapping`] where two indices may reach one element, and
    /// [`Error::SubByte`] for elements that share bytes.
    pub(crate) fn split(self, axis: usize, index: usize) -> Result<(Self, Self), Error> {
        self.parts().check_disjoint()?;
        let front = self.part(Cut::Slice { axis, start: 0, end: Some(index) })?;
        let back = self.part(Cut::Slice { axis, start: index, end: None })?;
        Ok((front, back))
    }
}

impl Handle {
    /// Turns a tensor into a part of it, which keeps the memory alive and has the same class. A part of
    /// a part keeps the memory alive directly, without the part in between.
    ///
    /// # Errors
    ///
    /// As for [`Parts::part`]. The handle is dropped then.
    pub(crate) fn into_part(self, cut: Cut<'_>) -> Result<Self, Error> {
        let (layout, memory) = self.parts().part(cut)?;
        let marks = self.marks;
        let whole = if self.root() == Root::Header { self } else { self.wrap() };
        // A header around a producer's tensor stays: handles are counted by it.
        let is_part = whole.owner::<Self>().is_some_and(|inner| inner.root() == Root::Header);
        let whole = if is_part { whole.take_owner().unwrap_or_else(|whole| whole) } else { whole };
        // SAFETY: elements of this handle's (R1), of their class or a weaker one: no other handle has
        // them than before (R4). `whole` keeps them alive (R2).
        let parts = unsafe { Parts::new(layout.borrow(), memory) };
        // SAFETY: the same; the flags say no more than this handle's.
        Ok(unsafe { Self::around(whole, parts, marks) })
    }

    /// A part of a shared tensor, which keeps the memory alive directly, also if it is a part of a part.
    ///
    /// # Errors
    ///
    /// As for [`Parts::part`].
    ///
    /// # Safety
    ///
    /// There is a header, and the class is not exclusive.
    pub(crate) unsafe fn shared_part(&self, cut: Cut<'_>) -> Result<Self, Error> {
        let (layout, memory) = self.parts().part(cut)?;
        let behind = self.owner::<Self>();
        let is_shared = |it: &&Self| it.root() == Root::Header && it.access() != Access::Exclusive;
        let whole = behind.filter(is_shared).unwrap_or(self);
        // SAFETY: with a header, and not exclusive (asked just now, or the caller's duty; R3).
        let whole = unsafe { whole.another() };
        // SAFETY: elements of this handle's (R1), of their class (R4), kept alive by `whole` (R2).
        let parts = unsafe { Parts::new(layout.borrow(), memory) };
        // SAFETY: the same.
        Ok(unsafe { Self::around(whole, parts, self.marks) })
    }
}
