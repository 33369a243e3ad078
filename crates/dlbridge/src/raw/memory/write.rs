//! Typed writing, by value.
//! Invariant: no reference to the elements exists while an `ElementsMut` lives, and no other thread
//! accesses them during a call.

use std::marker::PhantomData;

use super::RowElements;
use super::elements::Elements;
use crate::layout::{self, Cut, Run, Runs};
use crate::raw::Checked;
use crate::raw::borrowed::Borrowed;
use crate::{Element, Error};

/// Elements of one type with exclusive access. They may overlap, since no reference is formed.
pub(crate) struct ElementsMut<'a, T> {
    described: Described<'a>,
    elements: PhantomData<&'a mut [T]>,
}

/// Elements whose type and device were checked.
pub(super) enum Described<'a> {
    Whole(Checked<'a>),
    Part(Borrowed<'a>),
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
        Elements::<T>::new(checked)?;
        Ok(Self::over(Described::Whole(checked)))
    }

    pub(super) fn over(described: Described<'a>) -> Self {
        Self { described, elements: PhantomData }
    }

    #[inline]
    pub(crate) fn elements(&self) -> Elements<'_, T> {
        match &self.described {
            Described::Whole(checked) => Elements::of_checked(*checked),
            Described::Part(part) => Elements::of_checked(part.checked()),
        }
    }

    /// The same elements, for a shorter lifetime.
    pub(crate) fn reborrow(&mut self) -> ElementsMut<'_, T> {
        let checked = *self.elements().checked();
        ElementsMut::over(Described::Whole(checked))
    }

    /// A part of the elements.
    ///
    /// # Errors
    ///
    /// As for [`Borrowed::part`].
    pub(crate) fn into_part(self, cut: Cut<'_>) -> Result<Self, Error> {
        Ok(Self::over(Described::Part(self.borrowed().part(cut)?)))
    }

    /// Two parts without common elements.
    ///
    /// # Errors
    ///
    /// As for [`Borrowed::split`].
    pub(crate) fn split(self, axis: usize, index: usize) -> Result<(Self, Self), Error> {
        let (front, back) = self.borrowed().split(axis, index)?;
        Ok((Self::over(Described::Part(front)), Self::over(Described::Part(back))))
    }

    /// Calls `function` with each row, one after the other.
    pub(crate) fn for_each_row(&mut self, mut function: impl FnMut(ElementsMut<'_, T>)) {
        for row in RowElements::new(self.elements(), 1) {
            function(ElementsMut::over(Described::Whole(*row.checked())));
        }
    }

    fn borrowed(self) -> Borrowed<'a> {
        match self.described {
            Described::Whole(checked) => Borrowed::from_checked(checked),
            Described::Part(part) => part,
        }
    }

    pub(crate) fn set(&mut self, index: &[usize], value: T) -> Option<()> {
        let elements = self.elements();
        let offset = elements.offset_of(index)?;
        let place = elements.checked().data.wrapping_offset(offset).cast::<T>();
        // SAFETY: the address of an element (R1), with exclusive access (this type's invariant).
        unsafe { place.write_unaligned(value) };
        Some(())
    }

    /// Writes `value` to every element.
    pub(crate) fn fill(&mut self, value: T) {
        self.replace_in_memory_order(|_| value);
    }

    /// Replaces each element by `value` of it, in the order of the memory: the order in which a transposed
    /// array is as fast as any other.
    pub(crate) fn replace_in_memory_order(&mut self, mut value: impl FnMut(T) -> T) {
        let elements = self.elements();
        let (shape, strides) =
            layout::by_stride(elements.checked().shape(), elements.checked().strides());
        for run in Runs::new(&shape, &strides, elements.checked().len()) {
            // SAFETY: a run of these elements, which are exclusive (R4, this type's invariant).
            unsafe { write_run(&elements, run, &mut value) };
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
                unsafe { write_run(&elements, run, |old| values.next().copied().unwrap_or(old)) };
            }
            source = rest;
        }
    }
}

/// Replaces the elements of a run.
///
/// # Safety
///
/// The run is one of the elements' layout, and no other code reads or writes them.
#[inline(always)]
pub(super) unsafe fn write_run<T: Element>(
    elements: &Elements<'_, T>,
    run: Run,
    mut value: impl FnMut(T) -> T,
) {
    let first = elements.checked().data.cast::<T>().wrapping_offset(run.start);
    let mut write = |at: *mut T| {
        // SAFETY: the layout has an element at this offset (R1), alive (R2).
        let old = unsafe { T::read(at.cast()) };
        // SAFETY: and exclusive (the caller's duty; R4).
        unsafe { at.write_unaligned(value(old)) };
    };
    // Two loops, so that the one over contiguous elements is vectorised.
    if run.step == 1 {
        (0..run.len).for_each(|i| write(first.wrapping_add(i)));
    } else {
        (0..run.len as isize).for_each(|i| write(first.wrapping_offset(i * run.step)));
    }
}
