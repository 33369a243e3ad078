//! `ReadCell`: an element that another language may write at any time.
//! Invariant: no `&T` to such memory is ever formed, only copies of its value.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;

use crate::Element;

/// One element of memory that another language may change between two reads.
///
/// [`View::as_cells`](crate::View::as_cells) borrows it in place of `&T`: reading copies the value
/// out. A loop over `&[ReadCell<T>]` vectorises like one over `&[T]`.
#[repr(transparent)]
pub struct ReadCell<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: a cell can only be read through, so sharing one between threads adds no write; that
// foreign code on another thread does not write is trust T6 of SAFETY.md.
unsafe impl<T: Sync> Sync for ReadCell<T> {}

impl<T: Element> ReadCell<T> {
    /// The current value of the element.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> T {
        // SAFETY: a cell exists only over an element of a `Checked` (R1, R2).
        unsafe { T::read(self.0.get().cast()) }
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for ReadCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
