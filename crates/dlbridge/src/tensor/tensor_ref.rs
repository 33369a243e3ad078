//! `TensorRef` and `TensorMut`: borrowed arrays, described for whoever takes a plain `DLTensor`.
//! Owning memory does not belong here (see `tensor`).
//! Invariant: the lifetime is that of the borrowed array; no heap is used up to rank 8.

use std::fmt;

use super::accessors::{metadata, reading};
use crate::raw::arrays::{Strided, StridedMut, borrow, borrow_mut};
use crate::raw::borrowed::Borrowed;
use crate::raw::{Parts, Plain, exclusive};
use crate::{Element, Error, ViewMut};

/// A borrowed tensor: what a C function taking `const DLTensor *` needs.
///
/// ```
/// use dlbridge::TensorRef;
///
/// let numbers = [1.0_f32, 2.0, 3.0];
/// let tensor = TensorRef::from(&numbers[..]);
/// assert_eq!(tensor.shape(), [3]);
/// // tensor.with_raw(|descriptor| unsafe { some_c_function(descriptor) });
/// ```
pub struct TensorRef<'a>(Borrowed<'a>);

impl<'a> TensorRef<'a> {
    metadata!();
    reading!();

    pub(crate) fn of(parts: Parts<'a>) -> Self {
        Self(Borrowed::of(parts))
    }

    pub(crate) fn from_borrowed(borrowed: Borrowed<'a>) -> Self {
        Self(borrowed)
    }

    #[inline]
    pub(crate) fn borrowed(&self) -> &Borrowed<'a> {
        &self.0
    }

    #[inline]
    pub(crate) fn of_array<A: Strided + ?Sized>(array: &'a A) -> Self {
        Self(describable(borrow(array)))
    }

    #[inline]
    pub(crate) fn parts(&self) -> Parts<'_> {
        self.0.parts()
    }
}

impl fmt::Debug for TensorRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::tensor::debug("TensorRef", &self.parts(), f)
    }
}

/// A mutably borrowed tensor: what a C function taking `DLTensor *` needs.
///
/// ```
/// use dlbridge::TensorMut;
///
/// let mut numbers = vec![1.0_f32, 2.0, 3.0];
/// let mut tensor = TensorMut::from(&mut numbers[..]);
/// tensor.as_slice_mut::<f32>()?[0] = 10.0;
/// assert_eq!(numbers, [10.0, 2.0, 3.0]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
pub struct TensorMut<'a>(pub(crate) Borrowed<'a>);

impl<'a> TensorMut<'a> {
    metadata!();
    reading!();

    #[inline]
    pub(crate) fn of_array<A: StridedMut + ?Sized>(array: &'a mut A) -> Self {
        Self(describable(borrow_mut(array)))
    }

    #[inline]
    pub(crate) fn parts(&self) -> Parts<'_> {
        self.0.parts()
    }

    /// The elements as a mutable slice.
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice).
    pub fn as_slice_mut<T: Plain>(&mut self) -> Result<&mut [T], Error> {
        exclusive::slice_mut(&mut self.0)
    }

    /// A typed view to write through.
    ///
    /// # Errors
    ///
    /// As [`view`](Self::view).
    pub fn view_mut<T: Element>(&mut self) -> Result<ViewMut<'_, T>, Error> {
        exclusive::elements_mut(&mut self.0).map(ViewMut::from_elements)
    }
}

impl fmt::Debug for TensorMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::tensor::debug("TensorMut", &self.parts(), f)
    }
}

/// The tensor of an array that nearly always can be described: a conversion that returns a
/// `Result` would ask all callers about layouts that hardly any of them has.
///
/// # Panics
///
/// If it was refused.
#[track_caller]
#[inline]
pub(crate) fn describable<T>(made: Result<T, Error>) -> T {
    #[cold]
    #[track_caller]
    fn refused(error: &Error) -> ! {
        panic!("expected an array that a tensor can describe: {error}")
    }
    match made {
        Ok(made) => made,
        Err(error) => refused(&error),
    }
}
