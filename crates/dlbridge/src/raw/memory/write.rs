//! Typed writing of host memory.
//! Deciding who may write does not belong here (see `slice`): whoever makes one has decided.
//! Invariant: nobody else reads or writes the elements while an `ElementsMut` lives.

use super::elements::Elements;
use crate::layout::{self, Run, Runs};
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

    /// Writes `value` to every element, in the order of the memory.
    pub(crate) fn fill(&mut self, value: T) {
        let (shape, strides) = layout::by_stride(self.0.parts().shape(), self.0.parts().strides());
        for run in Runs::new(&shape, &strides, self.0.parts().len()) {
            self.write_run(run, |_| value);
        }
    }

    /// Replaces each element by what `value` makes of it, in row-major order.
    pub(crate) fn replace(&mut self, mut value: impl FnMut(T) -> T) {
        for run in self.0.runs() {
            self.write_run(run, &mut value);
        }
    }

    #[inline(always)]
    fn write_run(&mut self, run: Run, mut value: impl FnMut(T) -> T) {
        let first = self.0.parts().data.cast::<T>().wrapping_offset(run.start);
        let mut write = |at: *mut T| {
            // SAFETY: the layout has an element at this offset (R1), alive (R2).
            let old = unsafe { T::read(at.cast()) };
            // SAFETY: and exclusive (this type's invariant; R4).
            unsafe { at.write_unaligned(value(old)) };
        };
        // Two loops, so that the one over contiguous elements is vectorised.
        if run.step == 1 {
            (0..run.len).for_each(|i| write(first.wrapping_add(i)));
        } else {
            (0..run.len as isize).for_each(|i| write(first.wrapping_offset(i * run.step)));
        }
    }
}
