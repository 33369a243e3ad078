//! Typed writing of host memory.
//! Deciding who may write does not belong here (see `slice`): whoever makes one has decided.
//! Invariant: nobody else reads or writes the elements while an `ElementsMut` lives.

use super::elements::Elements;
use crate::raw::Parts;
use crate::{Element, Error};

/// Elements of one type that are ours to write. They may overlap: no reference is formed.
pub(crate) struct ElementsMut<'a, T>(Elements<'a, T>);

// SAFETY: it lends what a `&mut [T]` lends (R9).
unsafe impl<T: Send + Sync> Send for ElementsMut<'_, T> {}
// SAFETY: the same.
unsafe impl<T: Send + Sync> Sync for ElementsMut<'_, T> {}

impl<'a, T: Element> ElementsMut<'a, T> {
    /// # Safety
    ///
    /// Nobody else reads or writes the elements for `'a`.
    pub(crate) unsafe fn new(parts: Parts<'a>) -> Result<Self, Error> {
        parts.check_writable()?;
        Elements::new(parts).map(Self)
    }

    pub(crate) fn elements(&self) -> &Elements<'a, T> {
        &self.0
    }

    pub(crate) fn set(&mut self, index: &[usize], value: T) -> Option<()> {
        let offset = self.0.offset_of(index)?;
        // SAFETY: an element lies there (R1), ours to write (this type's invariant).
        unsafe { self.0.parts().data.wrapping_offset(offset).cast::<T>().write_unaligned(value) };
        Some(())
    }

    /// Replaces each element by what `value` makes of it, in row-major order.
    pub(crate) fn replace(&mut self, mut value: impl FnMut(T) -> T) {
        for run in self.0.runs() {
            for i in 0..run.len as isize {
                let offset = (run.start + i * run.step) * size_of::<T>() as isize;
                let at = self.0.parts().data.wrapping_offset(offset);
                // SAFETY: the layout has an element at this offset (R1), alive (R2).
                let old = unsafe { T::read(at) };
                // SAFETY: and ours to write (this type's invariant; R4).
                unsafe { at.cast::<T>().write_unaligned(value(old)) };
            }
        }
    }
}
