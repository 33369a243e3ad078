//! Loops over elements on the threads of rayon.
//! Invariant: the ranges of one loop are disjoint, and together they are all elements.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice;

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator, split};

use super::buffer::Buffer;
use super::read::{Elements, write_mapped, write_zipped};
use super::threads::on_many;
use super::write::{Described, ElementsMut, write_pairs, write_run};
use super::{Iter, RowElements};
use crate::layout::Runs;
use crate::{Element, Error};

impl<'a, T: Element> Elements<'a, T> {
    /// The elements of a range of numbers, in row-major order.
    ///
    /// # Panics
    ///
    /// If there are fewer elements.
    pub(crate) fn iter_of(&self, range: Range<usize>) -> Iter<'a, T> {
        let (checked, len) = (self.checked(), self.checked().len());
        assert!(range.start <= range.end && range.end <= len, "a range of the elements");
        if checked.is_contiguous() {
            let data = checked.data.wrapping_add(range.start * size_of::<T>());
            // SAFETY: contiguous elements, inside the range (checked just now; R1, R2).
            return unsafe { Iter::contiguous(data, range.len()) };
        }
        let runs = Runs::within(checked.shape(), checked.strides(), len, range);
        // SAFETY: runs of the memory's own layout (R1, R2).
        unsafe { Iter::pieces(checked.data, runs) }
    }

    /// As [`map_to_buffer`](Self::map_to_buffer), on many threads.
    pub(crate) fn par_map_to_buffer<U: Element>(
        &self,
        function: impl Fn(T) -> U + Sync,
    ) -> Result<Buffer, Error> {
        let write = |range: Range<usize>, target: &mut [MaybeUninit<U>]| {
            let elements = self.iter_of(range);
            // SAFETY: a place for each element of the range (the duty of `written_in_pieces`).
            unsafe { write_mapped(elements, target.as_mut_ptr().cast(), &function) };
        };
        // SAFETY: all elements of each range are written (R1).
        unsafe { self.written_in_pieces(write) }
    }

    /// As [`zip_to_buffer`](Self::zip_to_buffer), on many threads.
    pub(crate) fn par_zip_to_buffer<V: Element, U: Element>(
        &self,
        other: &Elements<'_, V>,
        function: impl Fn(T, V) -> U + Sync,
    ) -> Result<Buffer, Error> {
        assert_eq!(
            self.checked().shape(),
            other.checked().shape(),
            "the caller compares the shapes"
        );
        let write = |range: Range<usize>, target: &mut [MaybeUninit<U>]| {
            let (elements, others) = (self.iter_of(range.clone()), other.iter_of(range));
            // SAFETY: a place for each pair of the range (the duty of `written_in_pieces`).
            unsafe { write_zipped(elements, others, target.as_mut_ptr().cast(), &function) };
        };
        // SAFETY: all pairs of each range are written (R1).
        unsafe { self.written_in_pieces(write) }
    }

    /// A buffer of as many elements of another type. `write` initialises the places of a range of
    /// element numbers, which are as many.
    ///
    /// # Safety
    ///
    /// `write` initialises all places that it is called with.
    unsafe fn written_in_pieces<U: Element>(
        &self,
        write: impl Fn(Range<usize>, &mut [MaybeUninit<U>]) + Sync,
    ) -> Result<Buffer, Error> {
        let write = |target: *mut u8| {
            let target = target.cast::<MaybeUninit<U>>();
            // SAFETY: aligned room for `len` values, which need not be initialised (R1, R7).
            let places = unsafe { slice::from_raw_parts_mut(target, self.checked().len()) };
            let pieces = split((0, places), half_the_places);
            on_many(|| {
                pieces.for_each(|(start, places)| write(start..start + places.len(), places));
            });
            Ok(())
        };
        // SAFETY: the pieces are all places, and each is initialised (the caller's duty).
        unsafe { Buffer::written(self.size_of::<U>()?, write) }
    }
}

impl<T: Element> ElementsMut<'_, T> {
    /// As `ViewMut::map_inplace`, on many threads and in any order.
    ///
    /// # Errors
    ///
    /// [`Error::Overlapping`] where two indices may reach one element.
    pub(crate) fn par_replace(&mut self, value: impl Fn(T) -> T + Sync) -> Result<(), Error> {
        let elements = self.elements();
        let checked = elements.checked();
        checked.check_disjoint()?;
        in_pieces(checked.len(), |range| {
            let (shape, strides) = (checked.shape(), checked.strides());
            let (front, runs, back) = Runs::within(shape, strides, checked.len(), range);
            for run in [front].into_iter().chain(runs).chain([back]) {
                // SAFETY: a run of these elements, which are exclusive (R4, this type's invariant); no
                // other range has them, since no two indices reach one element (checked just now).
                unsafe { write_run(&elements, run, |_, old| value(old)) };
            }
        });
        Ok(())
    }

    /// As [`replace_zipped`](Self::replace_zipped), on many threads and in any order.
    ///
    /// # Errors
    ///
    /// [`Error::Overlapping`] where two indices may reach one element.
    pub(crate) fn par_replace_zipped<U: Element>(
        &mut self,
        others: &Elements<'_, U>,
        value: impl Fn(T, U) -> T + Sync,
    ) -> Result<(), Error> {
        let elements = self.elements();
        let checked = elements.checked();
        checked.check_disjoint()?;
        in_pieces(checked.len(), |range| {
            let (elements, others) = (elements.iter_of(range.clone()), others.iter_of(range));
            // SAFETY: as in `par_replace` (R4).
            unsafe { write_pairs(elements, others, &value) };
        });
        Ok(())
    }

    /// The rows, for many threads.
    ///
    /// # Errors
    ///
    /// As for [`par_replace`](Self::par_replace).
    pub(crate) fn par_rows(
        &mut self,
    ) -> Result<impl IndexedParallelIterator<Item = ElementsMut<'_, T>>, Error> {
        let elements = self.elements();
        elements.checked().check_disjoint()?;
        let rows = RowElements::new(elements, 1);
        // Each number once, so that an element is in one row only (this type's invariant).
        let row = move |number| ElementsMut::over(Described::Whole(rows.row(number)));
        Ok((0..RowElements::new(elements, 1).len()).into_par_iter().map(row))
    }
}

/// Calls a function for ranges of numbers, which are those below `len`, on many threads.
fn in_pieces(len: usize, function: impl Fn(Range<usize>) + Sync) {
    on_many(|| split(0..len, halves).for_each(&function));
}

/// Two halves of a range of two numbers or more.
fn halves(range: Range<usize>) -> (Range<usize>, Option<Range<usize>>) {
    let middle = range.start + range.len() / 2;
    match middle == range.start {
        true => (range, None),
        false => (range.start..middle, Some(middle..range.end)),
    }
}

/// Places for the elements from a number on.
type Places<'a, U> = (usize, &'a mut [U]);

/// The same of places.
fn half_the_places<U>((start, places): Places<'_, U>) -> (Places<'_, U>, Option<Places<'_, U>>) {
    match places.len() / 2 {
        0 => ((start, places), None),
        half => {
            let (front, back) = places.split_at_mut(half);
            ((start, front), Some((start + half, back)))
        }
    }
}
