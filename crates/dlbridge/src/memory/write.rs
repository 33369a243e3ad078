//! Typed writing, by value.
//! Invariant: no reference to the elements exists while an `ElementsMut` lives, and no other thread
//! accesses them during a call.

use std::marker::PhantomData;

use super::read::Elements;
use super::{Iter, RowElements};
use crate::layout::{self, Cut, Run, Runs};
use crate::memory::Checked;
use crate::memory::descriptor::Borrowed;
use crate::{Element, Error, Shape};

/// Elements of one type with exclusive access. They may overlap, since no reference is formed.
pub(crate) struct ElementsMut<'a, T> {
    described: Described<'a, T>,
    elements: PhantomData<&'a mut [T]>,
}

/// Elements whose type and device were checked. The tag is a word, so that moves are of words: those of a byte and of
/// the bytes behind it stall the loads that follow. No function gets the address of a part, so that the compiler keeps
/// an `ElementsMut` in registers.
#[repr(u64)]
pub(super) enum Described<'a, T> {
    Whole(Elements<'a, T>),
    Part(Box<Borrowed<'a>>),
}

// SAFETY: it gives the access of a `&mut [T]` (R9).
unsafe impl<T: Send + Sync> Send for ElementsMut<'_, T> {}
// SAFETY: the same.
unsafe impl<T: Send + Sync> Sync for ElementsMut<'_, T> {}

impl<'a, T: Element> ElementsMut<'a, T> {
    /// # Safety
    ///
    /// For `'a`, no reference to the elements exists, and no other thread accesses them during a call.
    pub(crate) unsafe fn new(checked: Checked<'a>) -> Result<Self, Error> {
        checked.check_writable()?;
        Ok(Self::over(Described::Whole(Elements::new(checked)?)))
    }

    /// Elements in host memory.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new), and the elements may be written.
    #[inline(always)]
    pub(crate) unsafe fn of_elements(elements: Elements<'a, T>) -> Self {
        Self::over(Described::Whole(elements))
    }

    #[inline(always)]
    pub(super) fn over(described: Described<'a, T>) -> Self {
        Self { described, elements: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn elements(&self) -> Elements<'_, T> {
        match &self.described {
            Described::Whole(elements) => *elements,
            Described::Part(part) => Elements::of_checked(part.checked()),
        }
    }

    /// The same elements, for a shorter lifetime.
    #[inline(always)]
    pub(crate) fn reborrow(&mut self) -> ElementsMut<'_, T> {
        ElementsMut::over(Described::Whole(self.elements()))
    }

    /// A part of the elements.
    ///
    /// # Errors
    ///
    /// As for [`Borrowed::part`].
    pub(crate) fn into_part(self, cut: Cut<'_>) -> Result<Self, Error> {
        Ok(Self::part_of(self.borrowed().part(cut)?))
    }

    /// Two parts without common elements.
    ///
    /// # Errors
    ///
    /// As for [`Borrowed::split`].
    pub(crate) fn split(self, axis: usize, index: usize) -> Result<(Self, Self), Error> {
        let (front, back) = self.borrowed().split(axis, index)?;
        Ok((Self::part_of(front), Self::part_of(back)))
    }

    /// Calls `function` with each row, one after the other.
    pub(crate) fn for_each_row(&mut self, mut function: impl FnMut(ElementsMut<'_, T>)) {
        for row in RowElements::new(self.elements(), 1) {
            function(ElementsMut::over(Described::Whole(row)));
        }
    }

    /// The rows, no two of which have an element in common, so that they may live at the same time.
    ///
    /// # Errors
    ///
    /// [`Error::Overlapping`] where two indices may reach one element.
    pub(crate) fn rows(
        &mut self,
    ) -> Result<impl ExactSizeIterator<Item = ElementsMut<'_, T>>, Error> {
        let elements = self.elements();
        elements.checked().check_disjoint()?;
        Ok(RowElements::new(elements, 1).map(|row| ElementsMut::over(Described::Whole(row))))
    }

    fn part_of(part: Borrowed<'a>) -> Self {
        Self::over(Described::Part(Box::new(part)))
    }

    fn borrowed(self) -> Borrowed<'a> {
        match self.described {
            Described::Whole(elements) => Borrowed::from_checked(*elements.checked()),
            Described::Part(part) => *part,
        }
    }

    pub(crate) fn set(&mut self, index: &impl Shape, value: T) -> Option<()> {
        let elements = self.elements();
        let offset = elements.offset_of(index)?;
        let place = elements.checked().data.wrapping_offset(offset).cast::<T>();
        // SAFETY: the address of an element (R1), with exclusive access (this type's invariant).
        unsafe { place.write_unaligned(value) };
        Some(())
    }

    /// Writes `value` to every element. An element that several indices reach is written once, so that a
    /// broadcast axis of any extent takes no time.
    pub(crate) fn fill(&mut self, value: T) {
        let elements = self.elements();
        let checked = elements.checked();
        if checked.len() == 0 {
            return;
        }
        let (shape, strides) = layout::by_stride(checked.shape(), checked.strides());
        // The axes of stride 0 are the last ones.
        let moving = strides.partition_point(|&stride| stride != 0);
        let (shape, strides) = (&shape[..moving], &strides[..moving]);
        for run in Runs::new(shape, strides, layout::count(shape)) {
            // SAFETY: a run of these elements, which are exclusive (R4, this type's invariant).
            unsafe { write_run(&elements, run, |_, _| value) };
        }
    }

    /// Replaces each element by `value` of it, in the order of the memory: the order in which a transposed
    /// array is as fast as any other.
    pub(crate) fn replace_in_memory_order(&mut self, mut value: impl FnMut(T) -> T) {
        let elements = self.elements();
        let len = elements.checked().len();
        if elements.checked().is_contiguous() {
            // SAFETY: all of these elements, which are exclusive (R4, this type's invariant).
            unsafe { write_run(&elements, Run { start: 0, len, step: 1 }, |_, old| value(old)) };
            return;
        }
        let (shape, strides) =
            layout::by_stride(elements.checked().shape(), elements.checked().strides());
        for run in Runs::new(&shape, &strides, len) {
            // SAFETY: a run of these elements, which are exclusive (R4, this type's invariant).
            unsafe { write_run(&elements, run, |_, old| value(old)) };
        }
    }

    /// Copies as many values to the elements, in row-major order.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub(crate) fn copy_from_slice(&mut self, mut source: &[T]) {
        let elements = self.elements();
        for run in elements.runs() {
            let (values, rest) = source.split_at(run.len);
            if run.step == 1 {
                let first = elements.checked().data.cast::<T>().wrapping_offset(run.start);
                let (from, to, size) =
                    (values.as_ptr().cast(), first.cast::<u8>(), size_of_val(values));
                // SAFETY: a contiguous run of these elements, which are exclusive, so that no slice has them
                // (R4, this type's invariant).
                unsafe { to.copy_from_nonoverlapping(from, size) };
            } else {
                let mut values = values.iter();
                // SAFETY: a run of these elements, which are exclusive (R4, this type's invariant).
                unsafe {
                    write_run(&elements, run, |_, old| values.next().copied().unwrap_or(old));
                };
            }
            source = rest;
        }
    }

    /// The same as [`replace_zipped`](Self::replace_zipped), if both are one axis of contiguous elements: without a loop
    /// over axes, and small enough to be compiled into its caller. Otherwise returns the elements: asked for again, they
    /// would be kept in memory, not in registers.
    #[inline(always)]
    pub(crate) fn replace_line<U: Element>(
        &mut self,
        others: &Elements<'_, U>,
        mut value: impl FnMut(T, U) -> T,
    ) -> Result<(), ElementsMut<'_, T>> {
        let elements = self.elements();
        let other = || Err(ElementsMut::over(Described::Whole(elements)));
        let (own, found) = (elements.checked(), others.checked());
        let (&[len], &[1], &[1], &[found]) =
            (own.shape(), own.strides(), found.strides(), found.shape())
        else {
            return other();
        };
        if found != len {
            return other();
        }
        let Some(cells) = others.cells() else { return other() };
        // SAFETY: all of these elements, which are exclusive (R4, this type's invariant).
        unsafe {
            write_run(&elements, Run { start: 0, len: cells.len(), step: 1 }, |i, old| {
                value(old, cells[i].get())
            });
        }
        Ok(())
    }

    /// Replaces each element by `value` of it and of another tensor's element, in row-major order. Both have as many.
    pub(crate) fn replace_zipped<U: Element>(
        &mut self,
        others: &Elements<'_, U>,
        value: impl FnMut(T, U) -> T,
    ) {
        // SAFETY: elements that are exclusive (R4, this type's invariant).
        unsafe { write_pairs(self.elements().iter(), others.iter(), value) };
    }
}

/// Replaces the elements of a run by a function of their number in it and their value.
///
/// # Safety
///
/// The run is one of the elements' layout, and no other code reads or writes them.
#[inline(always)]
pub(super) unsafe fn write_run<T: Element>(
    elements: &Elements<'_, T>,
    run: Run,
    mut value: impl FnMut(usize, T) -> T,
) {
    let first = elements.checked().data.cast::<T>().wrapping_offset(run.start);
    let mut write = |i: usize, at: *mut T| {
        // SAFETY: the layout has an element at this offset (R1), alive (R2).
        let old = unsafe { T::read(at.cast()) };
        // SAFETY: and exclusive (the caller's duty; R4).
        unsafe { at.write_unaligned(value(i, old)) };
    };
    // Two loops, so that the one over contiguous elements is vectorised.
    if run.step == 1 {
        (0..run.len).for_each(|i| write(i, first.wrapping_add(i)));
    } else {
        (0..run.len).for_each(|i| write(i, first.wrapping_offset(i as isize * run.step)));
    }
}

/// Replaces each element by a function of it and of another tensor's element.
///
/// # Safety
///
/// No other code reads or writes the first elements, which may be written.
#[inline(always)]
pub(super) unsafe fn write_pairs<T: Element, U: Element>(
    elements: Iter<'_, T>,
    others: Iter<'_, U>,
    mut value: impl FnMut(T, U) -> T,
) {
    elements.fold_places(others, (), |(), place, other| {
        // SAFETY: the place of an element (R1), alive (R2).
        let old = unsafe { T::read(place.cast()) };
        // SAFETY: the same of the other's.
        let other = unsafe { U::read(other.cast()) };
        // SAFETY: the first one is exclusive (the caller's duty; R4).
        unsafe { place.cast_mut().write_unaligned(value(old, other)) };
    });
}
