//! Parts of described memory: moves the data pointer by what `layout::Cut` measured (R1, R2, R4).

use super::borrowed::Borrowed;
use super::checked::{Checked, Memory};
use crate::layout::{self, Cut, Layout, Lists, OwnedLayout};
use crate::{DescriptorError, Error, Flags};

impl Checked<'_> {
    /// A part of these elements: its layout, and its location in this memory.
    ///
    /// Broadcast elements are read-only, as NumPy has them: several indices reach one element.
    ///
    /// # Errors
    ///
    /// Those of [`Lists::part`]; [`Error::SubByte`] where the part begins inside
    /// a byte.
    pub(crate) fn part(&self, cut: Cut<'_>) -> Result<(OwnedLayout, Memory), Error> {
        let (layout, offset) = OwnedLayout::part(self.layout(), cut)?;
        let memory = self.memory_of(cut, layout.borrow(), offset)?;
        Ok((layout, memory))
    }

    /// The same, with the numbers in these lists.
    ///
    /// # Errors
    ///
    /// As for [`part`](Self::part).
    ///
    /// # Panics
    ///
    /// If there is no space for as many axes as [`Cut::rank`] says.
    #[inline]
    pub(crate) fn part_in<'l>(
        &self,
        lists: Lists<'l>,
        cut: Cut<'_>,
    ) -> Result<(Layout<'l>, Memory), Error> {
        let (layout, offset) = lists.part(self.layout(), cut)?;
        Ok((layout, self.memory_of(cut, layout, offset)?))
    }

    /// The location of a part, `offset` elements away.
    fn memory_of(&self, cut: Cut<'_>, part: Layout<'_>, offset: isize) -> Result<Memory, Error> {
        let Checked { data, byte_offset, device, mut flags, mut access, .. } = *self;
        if let Cut::Broadcast(_) = cut {
            flags |= Flags::READ_ONLY;
            access = access.to_read();
        }
        let bytes = part.unit().offset(offset);
        let bytes = bytes.ok_or(Error::SubByte { padded: false, dtype: self.dtype() })?;
        let (data, byte_offset) = if device.kind.has_addresses() {
            (data.wrapping_offset(bytes), byte_offset)
        } else {
            let moved = byte_offset.checked_add_signed(bytes as i64);
            (data, moved.ok_or(DescriptorError::AddressOverflow { byte_offset })?)
        };
        Ok(Memory { data, byte_offset, device, flags, access })
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
    /// A part of `checked`, for the same lifetime.
    ///
    /// # Errors
    ///
    /// As for [`Checked::part`].
    #[inline]
    pub(crate) fn part_of(checked: &Checked<'a>, cut: Cut<'_>) -> Result<Self, Error> {
        let (layout, memory) = checked.part(cut)?;
        // SAFETY: elements of `checked`, borrowed for `'a` (R1, R2), and of their class or a weaker one
        // (R4).
        Ok(unsafe { Self::new(layout, memory) })
    }

    /// A part of memory that is only read through this description.
    ///
    /// # Errors
    ///
    /// As for [`Checked::part`].
    pub(crate) fn part(&self, cut: Cut<'_>) -> Result<Self, Error> {
        let (layout, memory) = self.checked().part(cut)?;
        // SAFETY: as above, of what is borrowed for `'a`.
        Ok(unsafe { Self::new(layout, memory) })
    }

    /// The parts of an axis before and from an index, which share no byte.
    ///
    /// # Errors
    ///
    /// As for [`Checked::part`]; [`Error::Overlapping`] where two indices may reach one element, and
    /// [`Error::SubByte`] for elements that share bytes.
    pub(crate) fn split(self, axis: usize, index: usize) -> Result<(Self, Self), Error> {
        self.checked().check_disjoint()?;
        let front = self.part(Cut::Slice { axis, start: 0, end: Some(index) })?;
        let back = self.part(Cut::Slice { axis, start: index, end: None })?;
        Ok((front, back))
    }
}
