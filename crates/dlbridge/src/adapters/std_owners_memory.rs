//! Slices, vectors, boxes, arrays and shared slices of the standard library:
//! where their elements lie, and slices over checked elements.
#![allow(unsafe_code)]

use std::slice;
use std::sync::Arc;

use super::memory::{Strided, StridedMut, ViewMutOf, ViewOf};
use crate::layout::Lists;
use crate::memory::Checked;
use crate::memory::handle::header::Owns;
use crate::{Element, Error, Plain};

/// One value, without axes.
#[repr(transparent)]
pub(super) struct Scalar<T>(pub(super) T);

// SAFETY: the one element is the value itself (R10).
unsafe impl<T: Element> Strided for Scalar<T> {
    type Elem = T;
    const OWNS: Owns = Owns::Elements;

    fn axes(&self) -> usize {
        0
    }

    fn describe(&self, _: &mut Lists<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn origin(&self) -> *const T {
        &raw const self.0
    }
}

// SAFETY: a unique borrow of the value (R10).
unsafe impl<T: Element> StridedMut for Scalar<T> {
    fn origin_mut(&mut self) -> *mut T {
        &raw mut self.0
    }
}

// SAFETY: a slice's elements are contiguous (R10).
unsafe impl<T: Element> Strided for [T] {
    type Elem = T;

    #[inline]
    fn axes(&self) -> usize {
        1
    }

    #[inline]
    fn describe(&self, lists: &mut Lists<'_>) -> Result<(), Error> {
        lists.set(0, <[T]>::len(self), 1)
    }

    #[inline]
    fn origin(&self) -> *const T {
        self.as_ptr()
    }
}

// SAFETY: a unique borrow of the slice (R10).
unsafe impl<T: Element> StridedMut for [T] {
    #[inline]
    fn origin_mut(&mut self) -> *mut T {
        self.as_mut_ptr()
    }
}

owner_of_array_mut!([T: Element] Vec<T> => [T], Owns::Elements);
owner_of_array_mut!([T: Element] Box<[T]> => [T], Owns::Elements);
owner_of_array_mut!([T: Element, const N: usize] [T; N] => [T], Owns::Elements);
owner_of_array_mut!([T: Element, const N: usize] Vec<[T; N]> => [[T; N]], Owns::Elements);
owner_of_array_mut!([T: Element, const N: usize, const M: usize] [[T; N]; M] => [[T; N]], Owns::Elements);
owner_of_array!([A: Strided + ?Sized] Arc<A> => A);
owner_of_array!([A: Strided + ?Sized] &A => A);

// SAFETY: the rows of a slice are arrays without gaps between them, so its elements are contiguous (R10).
unsafe impl<T: Element, const N: usize> Strided for [[T; N]] {
    type Elem = T;

    fn axes(&self) -> usize {
        2
    }

    fn describe(&self, lists: &mut Lists<'_>) -> Result<(), Error> {
        lists.set(0, <[[T; N]]>::len(self), N)?;
        lists.set(1, N, 1)
    }

    fn origin(&self) -> *const T {
        self.as_ptr().cast()
    }
}

// SAFETY: a unique borrow of the slice (R10).
unsafe impl<T: Element, const N: usize> StridedMut for [[T; N]] {
    fn origin_mut(&mut self) -> *mut T {
        self.as_mut_ptr().cast()
    }
}

impl<'a, T: Plain> ViewOf<'a> for &'a [T] {
    type Elem = T;

    #[inline]
    unsafe fn over(data: *const T, checked: &Checked<'_>) -> Result<Self, Error> {
        checked.check_contiguous()?;
        // SAFETY: aligned, `len` contiguous elements (checked, R1), every bit pattern a value (R5);
        // that they are alive and not written is the caller's duty.
        Ok(unsafe { slice::from_raw_parts(data, checked.len()) })
    }
}

impl<'a, T: Plain> ViewMutOf<'a> for &'a mut [T] {
    type Elem = T;

    #[inline]
    unsafe fn over_mut(data: *mut T, checked: &Checked<'_>) -> Result<Self, Error> {
        checked.check_contiguous()?;
        // SAFETY: as in `over`; that no other code has access is the caller's duty.
        Ok(unsafe { slice::from_raw_parts_mut(data, checked.len()) })
    }
}
