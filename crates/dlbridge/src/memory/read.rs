//! Typed reading of host memory that other code may write. Values are copied out, never referenced.
//! Invariant: the memory is host memory of `T`'s dtype; offsets come from a measured layout (R1).

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::Iter;
use super::buffer::Buffer;
use super::copy::copy_strided;
use crate::layout::{Blocks, Layout, Runs};
use crate::memory::Checked;
use crate::memory::checked::Memory;
use crate::{Element, Error, Flags, Shape, ShapeField, layout};

/// Elements of one type, read by value. The address may be unaligned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elements<'a, T> {
    checked: Checked<'a>,
    cells: PhantomData<&'a [ReadCell<T>]>,
}

// SAFETY: it gives the access of a `&[ReadCell<T>]`, which is `Send` and `Sync` (R9).
unsafe impl<T: Sync> Send for Elements<'_, T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for Elements<'_, T> {}

impl<'a, T: Element> Elements<'a, T> {
    #[inline(always)]
    pub(crate) fn new(checked: Checked<'a>) -> Result<Self, Error> {
        checked.check_dtype(T::DTYPE)?;
        checked.check_host()?;
        Ok(Self { checked, cells: PhantomData })
    }

    /// The same as [`new`](Self::new), without a check.
    ///
    /// # Safety
    ///
    /// It is host memory of `T`'s dtype.
    #[inline(always)]
    pub(crate) unsafe fn typed(checked: Checked<'a>) -> Self {
        Self { checked, cells: PhantomData }
    }

    /// Elements whose type and device were checked before.
    ///
    /// # Panics
    ///
    /// If they were not.
    #[inline]
    pub(crate) fn of_checked(checked: Checked<'a>) -> Self {
        Self::new(checked).unwrap_or_else(|error| error.impossible())
    }

    /// A part of the elements, with another layout.
    ///
    /// # Safety
    ///
    /// From `start` on, in elements, `layout` reaches elements of this, and no others.
    #[inline(always)]
    pub(crate) unsafe fn part(&self, layout: Layout<'a>, start: isize) -> Self {
        let data = self.checked.data.wrapping_offset(start.wrapping_mul(size_of::<T>() as isize));
        let memory = Memory { data, ..self.checked.memory() };
        // SAFETY: elements of checked parts (R1, R2, R4; the caller's duty).
        let checked = unsafe { Checked::new(layout, memory) };
        Self { checked, cells: PhantomData }
    }

    /// The description of the memory.
    #[inline]
    pub(crate) fn checked(&self) -> &Checked<'a> {
        &self.checked
    }

    /// The byte offset of an index's element, or `None` if there is no such index.
    #[inline]
    pub(crate) fn offset_of(&self, index: &impl Shape) -> Option<isize> {
        let (shape, ndim) = (self.checked.shape(), index.ndim());
        if ndim != shape.len() {
            return None;
        }
        let strides = self.checked.strides().get(..ndim)?;
        let mut offset = 0_i64;
        // By index: iterating over three lists compiles to worse code.
        for axis in 0..ndim {
            let i = index.extent(axis);
            // One comparison: an extent is not negative, and a negative index is a large `u64`.
            if i as u64 >= shape[axis] as u64 {
                return None;
            }
            // Of an element it fits (R1). Where there is none, strides may be anything, and a
            // later axis has no index.
            offset = offset.wrapping_add(i.wrapping_mul(strides[axis]));
        }
        Some((offset as isize).wrapping_mul(size_of::<T>() as isize))
    }

    #[inline]
    pub(crate) fn get(&self, index: &impl Shape) -> Option<T> {
        let offset = self.offset_of(index)?;
        // SAFETY: every extent was respected, so an element lies there (R1, R2).
        Some(unsafe { T::read(self.checked.data.wrapping_offset(offset)) })
    }

    #[inline]
    pub(crate) fn runs(&self) -> Runs<'a> {
        Runs::new(self.checked.shape(), self.checked.strides(), self.checked.len())
    }

    #[inline]
    pub(crate) fn iter(&self) -> Iter<'a, T> {
        if let Some(len) = self.checked.contiguous_len() {
            // SAFETY: `len` contiguous elements (checked just now; R1, R2).
            unsafe { Iter::contiguous(self.checked.data, len) }
        } else {
            // SAFETY: the runs are those of the memory's own layout (R1, R2).
            unsafe { Iter::strided(self.checked.data, self.runs()) }
        }
    }

    /// The elements as cells, if they are contiguous and aligned.
    #[inline]
    pub(crate) fn cells(&self) -> Option<&'a [ReadCell<T>]> {
        let len = self.checked.contiguous_len()?;
        if len == 0 {
            return Some(&[]);
        }
        let data = self.checked.data.cast::<ReadCell<T>>();
        if !data.is_aligned() {
            return None;
        }
        // SAFETY: aligned and contiguous (checked), `len` elements (R1) alive for `'a` (R2); other code
        // may write a cell, which holds any bytes. Over memory that a Rust owner borrows immutably, no
        // code writes: Tree Borrows allows such a cell, Stacked Borrows does not.
        Some(unsafe { std::slice::from_raw_parts(data, len) })
    }

    /// Copies the elements, in row-major order, to `target`, and returns their number.
    ///
    /// # Safety
    ///
    /// `target` is valid for writes of `len` elements and lies outside this memory.
    unsafe fn copy_to(&self, target: *mut T) -> usize {
        if self.checked.is_contiguous() {
            let len = self.checked.len();
            // SAFETY: `len` contiguous elements (R1); the target is the caller's duty.
            unsafe { T::copy_run(self.checked.data, target, len) };
            return len;
        }
        let blocks = Blocks::new(self.checked.shape(), self.checked.strides());
        // SAFETY: the elements of a measured layout (R1, R2); the target is the caller's duty.
        unsafe { copy_strided::<T>(self.checked.data, target.cast(), &blocks) }
    }

    pub(crate) fn copy_to_slice(&self, target: &mut [T]) -> Result<(), Error> {
        let found = self.checked.len();
        if target.len() != found {
            return Err(Error::ShapeMismatch {
                field: ShapeField::Length,
                expected: target.len(),
                found,
            });
        }
        // SAFETY: a unique borrow of `len` elements, so that no tensor's memory lies there (T6).
        unsafe { self.copy_to(target.as_mut_ptr()) };
        Ok(())
    }

    /// An empty vector with room for as many values. A broadcast tensor can have more elements than fit in
    /// memory, which must not end the process.
    #[inline]
    fn room<U>(&self) -> Result<Vec<U>, Error> {
        let (mut values, len) = (Vec::new(), self.checked.len());
        match values.try_reserve_exact(len) {
            Ok(()) => Ok(values),
            Err(_) => Err(Error::OutOfMemory { size: len.saturating_mul(size_of::<U>()) }),
        }
    }

    /// Applies `function` to the elements, in row-major order.
    #[inline]
    pub(crate) fn map<U>(&self, mut function: impl FnMut(T) -> U) -> Result<Vec<U>, Error> {
        let mut values: Vec<U> = self.room()?;
        let mut filled = Filled { values: &mut values, len: 0 };
        let start = filled.values.as_mut_ptr();
        self.iter().for_each(|value| {
            let at = start.wrapping_add(filled.len);
            // SAFETY: the iterator gives `len` elements, and there is room for as many (R1, R7).
            unsafe { at.write(function(value)) };
            filled.len += 1;
        });
        drop(filled);
        Ok(values)
    }

    /// Applies `function` to the elements, in row-major order, with the results in a buffer.
    #[inline]
    pub(crate) fn map_to_buffer<U: Element>(
        &self,
        mut function: impl FnMut(T) -> U,
    ) -> Result<Buffer, Error> {
        let write = |target: *mut u8| {
            // SAFETY: room for all elements, aligned (R1, R7).
            unsafe { write_mapped(self.iter(), target.cast(), &mut function) };
            Ok(())
        };
        // SAFETY: all elements are written (R1).
        unsafe { Buffer::written(self.size_of::<U>()?, write) }
    }

    /// Applies `function` to the elements and those of another tensor of the same shape, in row-major
    /// order, with the results in a buffer.
    #[inline]
    pub(crate) fn zip_to_buffer<V: Element, U: Element>(
        &self,
        other: &Elements<'_, V>,
        mut function: impl FnMut(T, V) -> U,
    ) -> Result<Buffer, Error> {
        assert_eq!(self.checked.shape(), other.checked.shape(), "the caller compares the shapes");
        let write = |target: *mut u8| {
            // SAFETY: room for all elements, aligned (R1, R7).
            unsafe { write_zipped(self.iter(), other.iter(), target.cast(), &mut function) };
            Ok(())
        };
        // SAFETY: all elements are written: both have as many (R1).
        unsafe { Buffer::written(self.size_of::<U>()?, write) }
    }

    /// The size in bytes of as many elements of another type.
    pub(super) fn size_of<U: Element>(&self) -> Result<usize, Error> {
        layout::nbytes(self.checked.len(), U::DTYPE, Flags::NONE)
    }

    pub(crate) fn to_vec(self) -> Result<Vec<T>, Error> {
        let mut values = self.room()?;
        // SAFETY: fresh memory, with room for `len` elements (R7).
        let written = unsafe { self.copy_to(values.as_mut_ptr()) };
        // SAFETY: so many elements were written just now (R8).
        unsafe { values.set_len(written) };
        Ok(values)
    }
}

/// Writes `function` of each element to `target`.
///
/// # Safety
///
/// `target` is aligned, and valid for writes of as many values.
#[inline(always)]
pub(super) unsafe fn write_mapped<T: Element, U>(
    elements: Iter<'_, T>,
    mut target: *mut U,
    mut function: impl FnMut(T) -> U,
) {
    elements.for_each(|value| {
        // SAFETY: one of as many values (the caller's duty).
        unsafe { target.write(function(value)) };
        target = target.wrapping_add(1);
    });
}

/// Writes `function` of each pair of elements to `target`.
///
/// # Safety
///
/// `target` is aligned, and valid for writes of as many values.
#[inline(always)]
pub(super) unsafe fn write_zipped<T: Element, V: Element, U>(
    elements: Iter<'_, T>,
    others: Iter<'_, V>,
    mut target: *mut U,
    mut function: impl FnMut(T, V) -> U,
) {
    elements.fold_pairs(others, (), |(), value, other| {
        // SAFETY: one of as many values (the caller's duty).
        unsafe { target.write(function(value, other)) };
        target = target.wrapping_add(1);
    });
}

/// Sets the length of a vector whose first `len` elements were written, also after a panic.
struct Filled<'a, U> {
    values: &'a mut Vec<U>,
    len: usize,
}

impl<U> Drop for Filled<'_, U> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `len` elements were written, inside the vector's capacity (`map`; R7).
        unsafe { self.values.set_len(self.len) };
    }
}

// `ReadCell`: an element that another language may write at any time.
// Invariant: no `&T` to such memory is ever formed, only copies of its value.

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
