//! Rows: the elements of the inner axes, for each index of the outer axes, without allocation.
//! Invariants: a row's elements are those of the whole, each in one row; `row` was measured.

use std::iter::FusedIterator;

use super::elements::Elements;
use crate::layout::{self, Layout, Runs};
use crate::{Element, Flags};

/// The elements of the inner axes for each index of the outer axes, in row-major order.
///
/// A row costs a few instructions, for any strides.
#[derive(Clone, Debug)]
pub(crate) struct RowElements<'a, T> {
    elements: Elements<'a, T>,
    /// The layout of every row.
    row: Layout<'a>,
    /// The offsets of the rows that were not reached yet, in runs.
    starts: Runs<'a>,
    /// The offset of the next row, the rows left in its run, and the distance between two of them.
    at: isize,
    left: usize,
    step: isize,
}

impl<'a, T: Element> RowElements<'a, T> {
    /// The elements of the last `inner` axes. A scalar has one row of one element.
    #[inline]
    pub(crate) fn new(elements: Elements<'a, T>, inner: usize) -> Self {
        let (shape, strides) = (elements.checked().shape(), elements.checked().strides());
        let (outer, inner) = match shape.len().checked_sub(inner) {
            Some(at) => (at, (&shape[at..], &strides[at..])),
            None => (0, (&[1][..], &[1][..])),
        };
        let measure = |(shape, strides)| Layout::measure(shape, strides, T::DTYPE, Flags::NONE);
        let count = layout::count(&shape[..outer]);
        if elements.checked().len() > 0 {
            let row = measure(inner).expect("no longer than what was measured");
            let starts = Runs::new(&shape[..outer], &strides[..outer], count);
            return Self { elements, row, starts, at: 0, left: 0, step: 0 };
        }
        // Strides of empty tensors mean nothing: all rows are the same, without elements.
        let (inner, left) =
            if inner.0.contains(&0) { (inner, count) } else { ((&[0][..], &[1][..]), 0) };
        let row = measure(inner).expect("no element is not too many");
        let starts = Runs::new(&[], &[], 0);
        Self { elements, row, starts, at: 0, left, step: 0 }
    }
}

#[cfg(feature = "rayon")]
impl<'a, T: Element> RowElements<'a, T> {
    /// A row by its number.
    ///
    /// # Panics
    ///
    /// If fewer rows are left.
    pub(crate) fn row(&self, number: usize) -> Elements<'a, T> {
        assert!(number < self.len(), "a row that is left");
        // SAFETY: the offset of an index of the outer axes, as in `next` (R1).
        unsafe { self.elements.part(self.row, self.starts.offset(number)) }
    }
}

impl<'a, T: Element> Iterator for RowElements<'a, T> {
    type Item = Elements<'a, T>;

    #[inline]
    fn next(&mut self) -> Option<Elements<'a, T>> {
        if self.left == 0 {
            let run = self.starts.next()?;
            (self.at, self.left, self.step) = (run.start, run.len, run.step);
        }
        let start = self.at;
        self.left -= 1;
        // Wraps, since the address after the last row need not exist.
        self.at = start.wrapping_add(self.step);
        // SAFETY: the offset of an index of the outer axes, from which the inner axes reach the
        // elements of that index (R1); or there are no elements.
        Some(unsafe { self.elements.part(self.row, start) })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left + self.starts.left() * self.starts.run_len();
        (left, Some(left))
    }
}

impl<T: Element> ExactSizeIterator for RowElements<'_, T> {}

impl<T: Element> FusedIterator for RowElements<'_, T> {}
