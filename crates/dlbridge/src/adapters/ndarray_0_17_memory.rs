//! Where the elements of an `ArrayRef` lie.
#![allow(unsafe_code)]

use ndarray::{ArrayRef, Dimension};

use super::conversions::memory::strided;
use crate::adapters::memory::{Strided, StridedMut};
use crate::layout::Lists;
use crate::memory::handle::header::Owns;
use crate::{Element, Error};

strided!([T: Element, D: Dimension] ArrayRef<T, D>, T);

// SAFETY: a unique borrow of the elements (R10).
unsafe impl<T: Element, D: Dimension> StridedMut for ArrayRef<T, D> {
    #[inline]
    fn origin_mut(&mut self) -> *mut T {
        self.as_mut_ptr()
    }
}
