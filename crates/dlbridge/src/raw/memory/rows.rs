//! Views over the inner axes of a view, without lists of their own.
//! Invariants: a row's elements are the view's, each in one view; `row` was measured.

use std::iter::FusedIterator;

use super::elements::Elements;
use crate::layout::{self, Layout, Runs};
use crate::{Element, Flags, View};

/// Views over the inner axes of a [`View`], for each index of the outer ones: its
/// [rows](View::rows), or what [`outer_iter`](View::outer_iter) gives.
///
/// In row-major order. Each costs a few instructions, whatever the strides.
#[derive(Clone, Debug)]
pub struct Rows<'a, T> {
    elements: Elements<'a, T>,
    /// Of each view.
    row: Layout<'a>,
    /// Where the runs of views start that are not begun.
    starts: Runs<'a>,
    /// The next view of the run that is begun, how many are left of it, and how far apart they are.
    at: isize,
    left: usize,
    step: isize,
}

impl<'a, T: Element> Rows<'a, T> {
    /// Views over the last `inner` axes; of a scalar, one view of one element.
    #[inline]
    pub(crate) fn new(elements: Elements<'a, T>, inner: usize) -> Self {
        let (shape, strides) = (elements.parts().shape(), elements.parts().strides());
        let (outer, inner) = match shape.len().checked_sub(inner) {
            Some(at) => (at, (&shape[at..], &strides[at..])),
            None => (0, (&[1][..], &[1][..])),
        };
        let measure = |(shape, strides)| Layout::measure(shape, strides, T::DTYPE, Flags::NONE);
        let count = layout::count(&shape[..outer]);
        if elements.parts().len() > 0 {
            let row = measure(inner).expect("no longer than what was measured");
            let starts = Runs::new(&shape[..outer], &strides[..outer], count);
            return Self { elements, row, starts, at: 0, left: 0, step: 0 };
        }
        // Strides of empty tensors mean nothing: all views are the same, without elements.
        let (inner, left) =
            if inner.0.contains(&0) { (inner, count) } else { ((&[0][..], &[1][..]), 0) };
        let row = measure(inner).expect("no element is not too many");
        let starts = Runs::new(&[], &[], 0);
        Self { elements, row, starts, at: 0, left, step: 0 }
    }
}

impl<'a, T: Element> Iterator for Rows<'a, T> {
    type Item = View<'a, T>;

    #[inline]
    fn next(&mut self) -> Option<View<'a, T>> {
        if self.left == 0 {
            let run = self.starts.next()?;
            (self.at, self.left, self.step) = (run.start, run.len, run.step);
        }
        let start = self.at;
        self.left -= 1;
        // Behind the last view there need not be an address.
        self.at = start.wrapping_add(self.step);
        // SAFETY: the outer axes' offset of an index, from which the inner axes reach the elements
        // of this index (R1); or there are no elements.
        Some(View { elements: unsafe { self.elements.part(self.row, start) } })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left + self.starts.left() * self.starts.run_len();
        (left, Some(left))
    }
}

impl<T: Element> ExactSizeIterator for Rows<'_, T> {}

impl<T: Element> FusedIterator for Rows<'_, T> {}
