//! Vectors, slices and arrays of the standard library, both ways: tensors of one axis.

use std::sync::Arc;

use super::describable;
use super::memory::{borrow, borrow_mut, export, export_frozen};
use super::std_owners_memory::Scalar;
use crate::{Element, Error, Plain, Tensor, TensorMut, TensorRef, View};

impl Tensor {
    /// A 0-d tensor with one value.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::scalar(2.5_f32);
    /// assert_eq!((tensor.ndim(), tensor.len()), (0, 1));
    /// ```
    #[must_use]
    pub fn scalar<T: Element>(value: T) -> Self {
        Self(export(Scalar(value)).unwrap_or_else(|error| error.impossible()))
    }
}

/// A vector becomes a tensor of one axis, without a copy.
impl<T: Element> From<Vec<T>> for Tensor {
    fn from(values: Vec<T>) -> Self {
        Self(export(values).unwrap_or_else(|error| error.impossible()))
    }
}

/// A boxed slice becomes a tensor of one axis, without a copy.
impl<T: Element> From<Box<[T]>> for Tensor {
    fn from(values: Box<[T]>) -> Self {
        Self(export(values).unwrap_or_else(|error| error.impossible()))
    }
}

/// An array becomes a tensor of one axis; its elements move into the tensor's own allocation.
impl<T: Element, const N: usize> From<[T; N]> for Tensor {
    fn from(values: [T; N]) -> Self {
        Self(export(values).unwrap_or_else(|error| error.impossible()))
    }
}

/// Rows of one length become a tensor of two axes, without a copy.
///
/// # Panics
///
/// If there are more than `i64::MAX` rows, which are rows without elements then.
impl<T: Element, const N: usize> From<Vec<[T; N]>> for Tensor {
    fn from(rows: Vec<[T; N]>) -> Self {
        describable(export(rows).map(Self))
    }
}

/// Nested arrays become a tensor of two axes; their elements move into the tensor's own allocation.
///
/// # Panics
///
/// If there are more than `i64::MAX` rows, which are rows without elements then.
impl<T: Element, const N: usize, const M: usize> From<[[T; N]; M]> for Tensor {
    fn from(rows: [[T; N]; M]) -> Self {
        describable(export(rows).map(Self))
    }
}

/// A shared slice becomes a read-only tensor of one axis, without a copy.
impl<T: Element> From<Arc<[T]>> for Tensor {
    fn from(values: Arc<[T]>) -> Self {
        Self(export_frozen(values).unwrap_or_else(|error| error.impossible()))
    }
}

/// A static slice becomes a read-only tensor of one axis, without a copy.
impl<T: Element> From<&'static [T]> for Tensor {
    fn from(values: &'static [T]) -> Self {
        Self(export_frozen(values).unwrap_or_else(|error| error.impossible()))
    }
}

impl<'a, T: Element> From<&'a [T]> for TensorRef<'a> {
    fn from(values: &'a [T]) -> Self {
        borrow(values)
    }
}

impl<'a, T: Element> From<&'a mut [T]> for TensorMut<'a> {
    fn from(values: &'a mut [T]) -> Self {
        borrow_mut(values)
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for TensorRef<'a> {
    fn from(values: &'a Vec<T>) -> Self {
        borrow(values)
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for TensorMut<'a> {
    fn from(values: &'a mut Vec<T>) -> Self {
        borrow_mut(values)
    }
}

views!(['a, T: Plain] &'a [T]);
views_mut!(['a, T: Plain] &'a mut [T]);
copies!([T: Element] T => Vec<T>, copied);

fn copied<T: Element>(view: &View<'_, T>) -> Result<Vec<T>, Error> {
    view.elements.to_vec()
}
