//! Parts of tensors that own their memory (R1 to R4).

use super::Handle;
use super::header::Owns;
use super::metadata::Origin;
use crate::layout::Cut;
use crate::raw::descriptor::Checked;
use crate::{Access, Error};

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
        let inner = self.inner();
        let is_shared =
            |it: &&Self| it.origin() == Origin::Header && it.access() != Access::Exclusive;
        let whole = inner.filter(is_shared).unwrap_or(self);
        // SAFETY: with a header, and not exclusive (asked just now, or the caller's duty; R3).
        let whole = unsafe { whole.another() };
        let rank = cut.rank(checked.shape().len());
        // SAFETY: elements of this handle's (R1), of their class (R4), kept alive by `whole` (R2).
        let mut part = unsafe {
            Self::export(whole, Owns::Anything, rank, |_, lists| checked.part_in(lists, cut))
        }?;
        part.metadata = part.metadata.with_memory_of(self.metadata);
        Ok(part)
    }
}
