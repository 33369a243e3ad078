//! The standard library's lists, both ways.
//! Shapes other than one axis do not belong here (see `export`).
//! Invariant: a list becomes one axis; what was immutable stays so.

use std::sync::Arc;

use crate::raw::arrays::{Scalar, export, export_frozen};
use crate::{Element, Error, Plain, Tensor, TensorMut, TensorRef};

/// Why exporting a list cannot fail.
const ONE_AXIS: &str = "one axis is never too many";

impl Tensor {
    /// A tensor of rank 0 with one value.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::scalar(2.5_f32);
    /// assert_eq!((tensor.rank(), tensor.len()), (0, 1));
    /// ```
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "no rank is too high")]
    pub fn scalar<T: Element>(value: T) -> Self {
        Self(export(Scalar(value)).expect(ONE_AXIS))
    }
}

/// A vector becomes a tensor of one axis, without a copy.
impl<T: Element> From<Vec<T>> for Tensor {
    fn from(values: Vec<T>) -> Self {
        Self(export(values).expect(ONE_AXIS))
    }
}

/// A boxed slice becomes a tensor of one axis, without a copy.
impl<T: Element> From<Box<[T]>> for Tensor {
    fn from(values: Box<[T]>) -> Self {
        Self(export(values).expect(ONE_AXIS))
    }
}

/// An array becomes a tensor of one axis; its elements move into the tensor's own allocation.
impl<T: Element, const N: usize> From<[T; N]> for Tensor {
    fn from(values: [T; N]) -> Self {
        Self(export(values).expect(ONE_AXIS))
    }
}

/// A shared slice becomes a read-only tensor of one axis, without a copy.
impl<T: Element> From<Arc<[T]>> for Tensor {
    fn from(values: Arc<[T]>) -> Self {
        Self(export_frozen(values).expect(ONE_AXIS))
    }
}

/// A static slice becomes a read-only tensor of one axis, without a copy.
impl<T: Element> From<&'static [T]> for Tensor {
    fn from(values: &'static [T]) -> Self {
        Self(export_frozen(values).expect(ONE_AXIS))
    }
}

impl<'a, T: Element> From<&'a [T]> for TensorRef<'a> {
    fn from(values: &'a [T]) -> Self {
        Self::of_array(values)
    }
}

impl<'a, T: Element> From<&'a mut [T]> for TensorMut<'a> {
    fn from(values: &'a mut [T]) -> Self {
        Self::of_array(values)
    }
}

impl<'a, T: Plain> TryFrom<&'a Tensor> for &'a [T] {
    type Error = Error;

    /// Borrows the elements; see [`Tensor::as_slice`].
    fn try_from(tensor: &'a Tensor) -> Result<Self, Error> {
        tensor.as_slice()
    }
}

impl<T: Element> TryFrom<&Tensor> for Vec<T> {
    type Error = Error;

    /// Copies the elements in row-major order; see [`View::to_vec`](crate::View::to_vec). To
    /// move a vector out again, use [`Tensor::into_owner`].
    fn try_from(tensor: &Tensor) -> Result<Self, Error> {
        Ok(tensor.view()?.to_vec())
    }
}
