//! Typed reading of host memory that anybody may write meanwhile.
//! References to elements do not belong here (see `slice`): values are copied out.
//! Invariant: the memory is host memory of `T`'s dtype; offsets come from a measured layout (R1).

use std::marker::PhantomData;

use super::element::Element;
use super::iter::Iter;
use super::{Parts, ReadCell};
use crate::Error;
use crate::runs::Runs;

/// Elements of one type, read by value. The address may be unaligned.
#[derive(Clone, Copy)]
pub(crate) struct Elements<'a, T> {
    data: *const u8,
    shape: &'a [i64],
    strides: &'a [i64],
    len: usize,
    contiguous: bool,
    cells: PhantomData<&'a [ReadCell<T>]>,
}

// SAFETY: it lends what a `&[ReadCell<T>]` lends, which is `Send` and `Sync`.
unsafe impl<T: Sync> Send for Elements<'_, T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for Elements<'_, T> {}

impl<'a, T: Element> Elements<'a, T> {
    #[inline]
    pub(crate) fn new(parts: Parts<'a>) -> Result<Self, Error> {
        parts.check_dtype(T::DTYPE)?;
        parts.check_host()?;
        Ok(Self {
            data: parts.data,
            shape: parts.shape,
            strides: parts.strides,
            len: parts.len,
            contiguous: parts.is_contiguous(),
            cells: PhantomData,
        })
    }

    pub(crate) fn shape(&self) -> &'a [i64] {
        self.shape
    }

    pub(crate) fn strides(&self) -> &'a [i64] {
        self.strides
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// The byte offset of an index's element, or `None` if there is no such index.
    pub(super) fn offset_of(&self, index: &[usize]) -> Option<isize> {
        if index.len() != self.shape.len() {
            return None;
        }
        let mut offset = 0_i64;
        for ((&i, &extent), &stride) in index.iter().zip(self.shape).zip(self.strides) {
            let i = i64::try_from(i).ok().filter(|&i| i < extent)?;
            offset += i * stride;
        }
        Some(offset as isize * size_of::<T>() as isize)
    }

    #[inline]
    pub(crate) fn get(&self, index: &[usize]) -> Option<T> {
        let offset = self.offset_of(index)?;
        // SAFETY: every extent was respected, so an element lies there (R1, R2).
        Some(unsafe { T::read(self.data.wrapping_offset(offset)) })
    }

    pub(super) fn runs(&self) -> Runs {
        Runs::new(self.shape, self.strides, self.contiguous)
    }

    #[inline]
    pub(crate) fn iter(&self) -> Iter<'a, T> {
        // SAFETY: the runs are those of the memory's own layout (R1, R2).
        unsafe { Iter::new(self.data, self.runs(), self.len) }
    }

    /// The elements as cells, if they lie side by side in row-major order and are aligned.
    #[inline]
    pub(crate) fn cells(&self) -> Option<&'a [ReadCell<T>]> {
        if self.len == 0 {
            return Some(&[]);
        }
        let data = self.data.cast::<ReadCell<T>>();
        if !self.contiguous || !data.is_aligned() {
            return None;
        }
        // SAFETY: aligned and contiguous (checked), `len` elements (R1) alive for `'a` (R2); a cell
        // may be written by others and holds any bytes. Over memory that a Rust owner lent
        // immutably, nobody writes: Tree Borrows allows such a cell, Stacked Borrows does not.
        Some(unsafe { std::slice::from_raw_parts(data, self.len) })
    }

    /// Copies the elements, in row-major order, to `target`.
    ///
    /// # Safety
    ///
    /// `target` is valid for writes of `len` elements and lies outside this memory.
    unsafe fn copy_to(&self, target: *mut T) {
        if self.contiguous {
            // SAFETY: `len` elements lie side by side (R1); the target is the caller's duty.
            return unsafe { T::copy_run(self.data, target, self.len) };
        }
        let mut at = target;
        self.iter().for_each(|value| {
            // SAFETY: the iterator gives `len` elements, and the caller vouches for as many.
            unsafe { at.write(value) };
            at = at.wrapping_add(1);
        });
    }

    pub(crate) fn copy_to_slice(&self, target: &mut [T]) -> Result<(), Error> {
        if target.len() != self.len {
            return Err(Error::LengthMismatch { wanted: target.len(), found: self.len });
        }
        // SAFETY: a unique borrow of `len` elements, which is therefore outside this memory.
        unsafe { self.copy_to(target.as_mut_ptr()) };
        Ok(())
    }

    pub(crate) fn to_vec(self) -> Vec<T> {
        let mut values = Vec::with_capacity(self.len);
        // SAFETY: fresh memory, with room for `len` elements.
        unsafe { self.copy_to(values.as_mut_ptr()) };
        // SAFETY: all `len` elements were written just now.
        unsafe { values.set_len(self.len) };
        values
    }
}
