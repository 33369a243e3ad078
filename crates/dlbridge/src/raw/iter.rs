//! Iteration over strided memory, by value.
//! Walking a layout does not belong here (see `runs`): this only reads where it says.
//! Invariant: `remaining` elements are left, `left` of them in the current run.

use std::iter::FusedIterator;
use std::marker::PhantomData;

use super::ReadCell;
use super::element::Element;
use crate::runs::{Run, Runs};

/// The elements of a [`View`](crate::View), by value, in row-major order.
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    data: *const u8,
    runs: Runs,
    /// The next element of the current run.
    at: *const u8,
    left: usize,
    /// In bytes.
    step: isize,
    remaining: usize,
    cells: PhantomData<&'a [ReadCell<T>]>,
}

// SAFETY: it lends what a `&[ReadCell<T>]` lends, which is `Send` and `Sync` (R9).
unsafe impl<T: Sync> Send for Iter<'_, T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for Iter<'_, T> {}

impl<T: Element> Iter<'_, T> {
    /// # Safety
    ///
    /// `runs` gives `remaining` offsets, and an element that lives for the iterator's lifetime
    /// lies at each of them from `data` on.
    #[inline]
    pub(super) unsafe fn new(data: *const u8, runs: Runs, remaining: usize) -> Self {
        Self { data, runs, at: data, left: 0, step: 0, remaining, cells: PhantomData }
    }

    #[inline]
    fn enter(&mut self, run: Run) {
        let size = size_of::<T>() as isize;
        self.at = self.data.wrapping_offset(run.start * size);
        self.left = run.len;
        self.step = run.step * size;
    }
}

impl<T: Element> Iterator for Iter<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.left == 0 {
            let run = self.runs.next()?;
            self.enter(run);
        }
        // SAFETY: `left` elements of the run remain, the first of them at `at` (`new`'s duty).
        let value = unsafe { T::read(self.at) };
        self.at = self.at.wrapping_offset(self.step);
        self.left -= 1;
        self.remaining -= 1;
        Some(value)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }

    /// One tight loop for each run: over contiguous memory, the loop that a slice would have.
    #[inline]
    fn fold<B, F: FnMut(B, T) -> B>(mut self, init: B, mut f: F) -> B {
        let mut accumulated = init;
        loop {
            let (at, step) = (self.at, self.step);
            if step == size_of::<T>() as isize {
                for i in 0..self.left {
                    // SAFETY: `left` elements of the run remain, side by side (`new`'s duty).
                    let value = unsafe { T::read(at.wrapping_add(i * size_of::<T>())) };
                    accumulated = f(accumulated, value);
                }
            } else {
                for i in 0..self.left as isize {
                    // SAFETY: `left` elements of the run remain, `step` apart (`new`'s duty).
                    let value = unsafe { T::read(at.wrapping_offset(i * step)) };
                    accumulated = f(accumulated, value);
                }
            }
            match self.runs.next() {
                Some(run) => self.enter(run),
                None => return accumulated,
            }
        }
    }
}

impl<T: Element> ExactSizeIterator for Iter<'_, T> {}

impl<T: Element> FusedIterator for Iter<'_, T> {}
