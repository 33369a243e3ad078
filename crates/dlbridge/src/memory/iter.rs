//! Iteration over strided memory, by value.
//! Invariant: the elements left are `left` from `at` on, those of `runs`, and `back_left` up to
//! `back`, in this order.

use std::iter::FusedIterator;
use std::marker::PhantomData;

use super::ReadCell;
use super::read::Elements;
use crate::layout::{Layout, Run, Runs};
use crate::{Element, Flags, layout};

/// Runs of so many elements are worth a loop of their own.
const LONG: usize = 16;

/// The elements of a [`View`](crate::View), by value, in row-major order.
///
/// Over contiguous elements, a `for` loop, `fold` and the methods built on it (`sum`, `for_each`, ...)
/// compile to the loop of a slice. `collect`, and sums over
/// a `zip`, do so for the standard library's own iterators only: [`View::map`](crate::View::map)
/// and [`View::as_cells`](crate::View::as_cells) stand in for them. A sum of floats is in order;
/// [`View::fold_lanes`](crate::View::fold_lanes) is faster.
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    /// The base of the offsets of runs.
    data: *const u8,
    /// The runs that neither end has reached.
    runs: Runs<'a>,
    /// Whether the only run is the current one, with contiguous elements. It never changes, so that the
    /// compiler makes two loops of one, this one the loop of a slice.
    is_contiguous: bool,
    /// The first element of the run at the front.
    at: *const u8,
    left: usize,
    /// The last element of the run at the back.
    back: *const u8,
    back_left: usize,
    cells: PhantomData<&'a [ReadCell<T>]>,
}

// SAFETY: it gives the access of a `&[ReadCell<T>]`, which is `Send` and `Sync` (R9).
unsafe impl<T: Sync> Send for Iter<'_, T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for Iter<'_, T> {}

impl<'a, T: Element> Iter<'a, T> {
    /// # Safety
    ///
    /// `len` contiguous elements from `data` on are alive for the lifetime of the iterator.
    #[inline]
    pub(crate) unsafe fn contiguous(data: *const u8, len: usize) -> Self {
        let mut all = Self::over(data, Runs::new(&[], &[], 0));
        (all.is_contiguous, all.left) = (true, len);
        all
    }

    /// # Safety
    ///
    /// An element that lives for the iterator's lifetime lies at each offset of `runs` from `data`
    /// on.
    #[inline]
    pub(crate) unsafe fn strided(data: *const u8, runs: Runs<'a>) -> Self {
        Self::over(data, runs)
    }

    /// The elements of a piece of a run, of whole runs, and of another piece, in this order.
    ///
    /// # Safety
    ///
    /// As for [`strided`](Self::strided), for the pieces as well, which have the step of `runs`.
    #[cfg(feature = "rayon")]
    pub(crate) unsafe fn pieces(
        data: *const u8,
        (front, runs, back): (Run, Runs<'a>, Run),
    ) -> Self {
        let mut all = Self::over(data, runs);
        (all.at, all.left) = (all.first(front), front.len);
        let before = (back.len as isize - 1).wrapping_mul(all.step());
        (all.back, all.back_left) = (all.first(back).wrapping_offset(before), back.len);
        all
    }

    #[inline]
    fn over(data: *const u8, runs: Runs<'a>) -> Self {
        let (at, back) = (data, data);
        let (left, back_left, is_contiguous) = (0, 0, false);
        Self { data, runs, is_contiguous, at, left, back, back_left, cells: PhantomData }
    }

    /// The distance between two elements of a run, in bytes.
    #[inline]
    fn step(&self) -> isize {
        self.runs.step() * size_of::<T>() as isize
    }

    /// Folds the pairs of elements of two iterators, until one of them has none left.
    #[inline]
    pub(crate) fn fold_pairs<U: Element, B>(
        self,
        other: Iter<'_, U>,
        init: B,
        mut f: impl FnMut(B, T, U) -> B,
    ) -> B {
        self.fold_places(other, init, |all, a, b| {
            // SAFETY: the place of an element (the maker's duty).
            let value = unsafe { T::read(a.cast()) };
            // SAFETY: the same of the other's.
            f(all, value, unsafe { U::read(b.cast()) })
        })
    }

    /// The same of their places: one tight loop for the elements that both have in one run.
    #[inline]
    pub(super) fn fold_places<U: Element, B>(
        mut self,
        mut other: Iter<'_, U>,
        init: B,
        mut f: impl FnMut(B, *const T, *const U) -> B,
    ) -> B {
        let mut all = init;
        if self.is_contiguous && other.is_contiguous {
            let (a, b) = (self.at.cast::<T>(), other.at.cast::<U>());
            for i in 0..self.left.min(other.left) {
                all = f(all, a.wrapping_add(i), b.wrapping_add(i));
            }
            return all;
        }
        loop {
            let len = self.in_run().min(other.in_run());
            if len == 0 {
                return all;
            }
            let (a, b) = (self.take_of_run(len), other.take_of_run(len));
            // Two loops, so that the one over contiguous elements is vectorised.
            if a.step == size_of::<T>() as isize && b.step == size_of::<U>() as isize {
                let (a, b) = (a.first.cast::<T>(), b.first.cast::<U>());
                for i in 0..len {
                    all = f(all, a.wrapping_add(i), b.wrapping_add(i));
                }
            } else {
                for i in 0..len as isize {
                    let (a, b) =
                        (a.first.wrapping_offset(i * a.step), b.first.wrapping_offset(i * b.step));
                    all = f(all, a.cast(), b.cast());
                }
            }
        }
    }

    /// The number of elements that remain of the run at the front, or of the next one; 0 at the end.
    #[inline]
    fn in_run(&mut self) -> usize {
        if self.left == 0 && !self.is_contiguous {
            self.advance();
        }
        self.left
    }

    /// Takes `len` elements of the run at the front.
    #[inline]
    fn take_of_run(&mut self, len: usize) -> Piece {
        let step = if self.is_contiguous { size_of::<T>() as isize } else { self.step() };
        let piece = Piece { first: self.at, step };
        self.at = self.at.wrapping_offset((len as isize).wrapping_mul(step));
        self.left -= len;
        piece
    }

    /// The first element of a run.
    #[inline]
    fn first(&self, run: Run) -> *const u8 {
        self.data.wrapping_offset(run.start * size_of::<T>() as isize)
    }

    /// Puts the next run that has elements to the front, if there is one.
    #[inline]
    fn advance(&mut self) -> bool {
        if let Some(run) = self.runs.next() {
            (self.at, self.left) = (self.first(run), run.len);
        } else {
            let before = (self.back_left as isize - 1).wrapping_mul(self.step());
            self.at = self.back.wrapping_offset(before.wrapping_neg());
            self.left = std::mem::take(&mut self.back_left);
        }
        self.left > 0
    }

    /// Puts the last run that has elements to the back, if there is one.
    #[inline]
    fn advance_back(&mut self) -> bool {
        let (first, len) = match self.runs.next_back() {
            Some(run) => (self.first(run), run.len),
            None => (self.at, std::mem::take(&mut self.left)),
        };
        let before = (len as isize - 1).wrapping_mul(self.step());
        (self.back, self.back_left) = (first.wrapping_offset(before), len);
        len > 0
    }
}

/// Elements of one run.
struct Piece {
    first: *const u8,
    /// In bytes.
    step: isize,
}

impl<T: Element> Iterator for Iter<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let step = if self.is_contiguous {
            if self.left == 0 {
                return None;
            }
            size_of::<T>() as isize
        } else {
            if self.left == 0 && !self.advance() {
                return None;
            }
            self.step()
        };
        // SAFETY: `left` elements of the run remain, the first of them at `at` (the maker's duty).
        let value = unsafe { T::read(self.at) };
        self.at = self.at.wrapping_offset(step);
        self.left -= 1;
        Some(value)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left + self.runs.left() * self.runs.run_len() + self.back_left;
        (left, Some(left))
    }

    /// One tight loop for each run: over contiguous memory, the loop of a slice.
    #[inline]
    fn fold<B, F: FnMut(B, T) -> B>(mut self, init: B, mut f: F) -> B {
        let mut accumulated = init;
        let step = self.runs.step();
        if self.is_contiguous {
            let first = self.at.cast::<T>();
            for i in 0..self.left {
                // SAFETY: `left` elements of the run remain, contiguous (the maker's duty).
                accumulated = f(accumulated, unsafe { T::read(first.wrapping_add(i).cast()) });
            }
        } else if self.runs.run_len() < LONG {
            for value in self {
                accumulated = f(accumulated, value);
            }
        } else {
            while self.left > 0 || self.advance() {
                let first = self.at.cast::<T>();
                for i in 0..std::mem::take(&mut self.left) as isize {
                    let at = first.wrapping_offset(i * step).cast();
                    // SAFETY: `left` elements of the run remain, `step` apart (the maker's duty).
                    accumulated = f(accumulated, unsafe { T::read(at) });
                }
            }
        }
        accumulated
    }
}

impl<T: Element> DoubleEndedIterator for Iter<'_, T> {
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        if self.is_contiguous {
            self.left = self.left.checked_sub(1)?;
            let at = self.at.wrapping_add(self.left * size_of::<T>());
            // SAFETY: the last of the elements that were left, contiguous (the maker's duty).
            return Some(unsafe { T::read(at) });
        }
        if self.back_left == 0 && !self.advance_back() {
            return None;
        }
        // SAFETY: `back_left` elements of the run remain, the last of them there (the maker's duty).
        let value = unsafe { T::read(self.back) };
        self.back = self.back.wrapping_offset(self.step().wrapping_neg());
        self.back_left -= 1;
        Some(value)
    }
}

impl<T: Element> ExactSizeIterator for Iter<'_, T> {}

impl<T: Element> FusedIterator for Iter<'_, T> {}

// Rows: the elements of the inner axes, for each index of the outer axes, without allocation.
// Invariants: a row's elements are those of the whole, each in one row; `row` was measured.

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
