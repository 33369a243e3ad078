//! The standard library's lists: slices, vectors, boxes, arrays, and shared slices.
//! Shapes other than one axis do not belong here (see `placement`).
//! Invariant: one axis, stride 1, as many elements as the slice has.

use std::sync::Arc;

use super::{Lists, Strided, StridedMut};
use crate::{Element, Error};

/// One value, without axes.
#[repr(transparent)]
pub(crate) struct Scalar<T>(pub(crate) T);

// SAFETY: the one element is the value itself (R10).
unsafe impl<T: Element> Strided for Scalar<T> {
    type Elem = T;

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

// SAFETY: a slice's elements lie side by side (R10).
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

lend_mut!([T: Element] Vec<T> => [T]);
lend_mut!([T: Element] Box<[T]> => [T]);
lend_mut!([T: Element, const N: usize] [T; N] => [T]);
lend!([A: Strided + ?Sized] Arc<A> => A);
lend!([A: Strided + ?Sized] &A => A);
