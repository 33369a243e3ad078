//! `ndarray` 0.17, both ways.
//! Where an array's memory lies is told in `raw/arrays/ndarray_0_17.rs`.
//! Invariant: shape and strides survive as they are, in either direction.

use std::sync::Arc;

use ndarray::{
    ArcArray, Array, ArrayBase, ArrayRef, ArrayView, ArrayViewMut, Data, DataMut, Dimension,
};

use super::describable;
use crate::raw::arrays::{export, export_frozen};
use crate::raw::exclusive;
use crate::{Element, Error, Plain, ReadCell, Tensor, TensorMut, TensorRef, View};

/// An array becomes a tensor without a copy, whatever its strides.
///
/// # Panics
///
/// If the array has more than [`MAX_RANK`](crate::MAX_RANK) axes.
///
/// ```
/// use dlbridge::Tensor;
/// use ndarray::array;
///
/// let tensor = Tensor::from(array![[1.0_f32, 2.0], [3.0, 4.0]]);
/// assert_eq!(tensor.shape(), [2, 2]);
/// assert_eq!(tensor.as_array::<f32, ndarray::Ix2>()?, array![[1.0, 2.0], [3.0, 4.0]]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
impl<T: Element, D: Dimension + 'static> From<Array<T, D>> for Tensor {
    fn from(array: Array<T, D>) -> Self {
        Self(describable(export(array)))
    }
}

/// A shared array becomes a read-only tensor without a copy.
///
/// # Panics
///
/// If the array has more than [`MAX_RANK`](crate::MAX_RANK) axes.
impl<T: Element, D: Dimension + 'static> From<ArcArray<T, D>> for Tensor {
    fn from(array: ArcArray<T, D>) -> Self {
        Self(describable(export_frozen(array)))
    }
}

/// A shared array becomes a read-only tensor without a copy.
///
/// # Panics
///
/// If the array has more than [`MAX_RANK`](crate::MAX_RANK) axes.
impl<T: Element, D: Dimension + 'static> From<Arc<Array<T, D>>> for Tensor {
    fn from(array: Arc<Array<T, D>>) -> Self {
        Self(describable(export_frozen(array)))
    }
}

/// An array or a view of one is described as it lies, read-only.
///
/// # Panics
///
/// If the array has more than [`MAX_RANK`](crate::MAX_RANK) axes, or a broadcast view has more
/// bytes than fit `isize`.
impl<'a, S, D> From<&'a ArrayBase<S, D>> for TensorRef<'a>
where
    S: Data<Elem: Element>,
    D: Dimension,
{
    fn from(array: &'a ArrayBase<S, D>) -> Self {
        Self::of_array(array)
    }
}

/// An array or a view of one is described as it lies, read-only.
///
/// # Panics
///
/// If the array has more than [`MAX_RANK`](crate::MAX_RANK) axes, or a broadcast view has more
/// bytes than fit `isize`.
impl<'a, T: Element, D: Dimension> From<&'a ArrayRef<T, D>> for TensorRef<'a> {
    fn from(array: &'a ArrayRef<T, D>) -> Self {
        Self::of_array(array)
    }
}

/// An array or a view of one is described as it lies, writable.
///
/// # Panics
///
/// If the array has more than [`MAX_RANK`](crate::MAX_RANK) axes, or a broadcast view has more
/// bytes than fit `isize`.
impl<'a, S, D> From<&'a mut ArrayBase<S, D>> for TensorMut<'a>
where
    S: DataMut<Elem: Element>,
    D: Dimension,
{
    fn from(array: &'a mut ArrayBase<S, D>) -> Self {
        Self::of_array(array)
    }
}

/// An array or a view of one is described as it lies, writable.
///
/// # Panics
///
/// If the array has more than [`MAX_RANK`](crate::MAX_RANK) axes, or a broadcast view has more
/// bytes than fit `isize`.
impl<'a, T: Element, D: Dimension> From<&'a mut ArrayRef<T, D>> for TensorMut<'a> {
    fn from(array: &'a mut ArrayRef<T, D>) -> Self {
        Self::of_array(array)
    }
}

/// Borrowing and copying as arrays, for everything that reads.
macro_rules! as_array {
    ($tensor:ty) => {
        impl $tensor {
            /// The elements as an ndarray view, if nobody can write them meanwhile (class
            /// [`Exclusive`](crate::Access::Exclusive) or [`Frozen`](crate::Access::Frozen)).
            /// Any strides.
            ///
            /// # Errors
            ///
            /// [`SharedMemory`](Error::SharedMemory), whose message names the ways out;
            /// [`DTypeMismatch`](Error::DTypeMismatch), [`RankMismatch`](Error::RankMismatch),
            /// [`NotHostAccessible`](Error::NotHostAccessible) or
            /// [`Misaligned`](Error::Misaligned).
            #[inline]
            pub fn as_array<T: Plain, D: Dimension>(&self) -> Result<ArrayView<'_, T, D>, Error> {
                self.parts().array()
            }

            /// A copy of the elements as an array in row-major order, for every class.
            ///
            /// # Errors
            ///
            /// [`DTypeMismatch`](Error::DTypeMismatch), [`RankMismatch`](Error::RankMismatch) or
            /// [`NotHostAccessible`](Error::NotHostAccessible).
            pub fn to_array<T: Element, D: Dimension>(&self) -> Result<Array<T, D>, Error> {
                self.view()?.to_array()
            }
        }
    };
}

as_array!(Tensor);
as_array!(TensorRef<'_>);
as_array!(TensorMut<'_>);

/// Borrowing mutably as an array.
macro_rules! as_array_mut {
    ($tensor:ty) => {
        impl $tensor {
            /// The elements as a mutable ndarray view, if nobody else has them (class
            /// [`Exclusive`](crate::Access::Exclusive)). Any strides without overlap.
            ///
            /// # Errors
            ///
            /// [`ReadOnly`](Error::ReadOnly), [`Overlapping`](Error::Overlapping), and those of
            /// [`as_array`](Self::as_array).
            pub fn as_array_mut<T: Plain, D: Dimension>(
                &mut self,
            ) -> Result<ArrayViewMut<'_, T, D>, Error> {
                exclusive::array_mut(&mut self.0)
            }
        }
    };
}

as_array_mut!(Tensor);
as_array_mut!(TensorMut<'_>);

impl<'a, T: Plain, D: Dimension> TryFrom<&'a Tensor> for ArrayView<'a, T, D> {
    type Error = Error;

    /// Borrows the elements; see [`Tensor::as_array`].
    fn try_from(tensor: &'a Tensor) -> Result<Self, Error> {
        tensor.as_array()
    }
}

impl<T: Element, D: Dimension> TryFrom<&Tensor> for Array<T, D> {
    type Error = Error;

    /// Copies the elements; see [`Tensor::to_array`]. To move an array out again, use
    /// [`Tensor::into_owner`].
    fn try_from(tensor: &Tensor) -> Result<Self, Error> {
        tensor.to_array()
    }
}

impl<'a, T: Plain> View<'a, T> {
    /// The elements as an ndarray view of cells: for memory of every class, any strides.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::from(ndarray::array![[1, 2], [3, 4]]).into_shared();
    /// let view = tensor.view::<i32>()?;
    /// let cells = view.read_array::<ndarray::Ix2>()?;
    /// assert_eq!(cells[[1, 0]].get(), 3);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RankMismatch`](Error::RankMismatch) or [`Misaligned`](Error::Misaligned).
    pub fn read_array<D: Dimension>(&self) -> Result<ArrayView<'a, ReadCell<T>, D>, Error> {
        self.elements.parts().cell_array()
    }
}

impl<T: Element> View<'_, T> {
    /// A copy of the elements as an array in row-major order.
    ///
    /// # Errors
    ///
    /// [`RankMismatch`](Error::RankMismatch).
    #[expect(clippy::missing_panics_doc, reason = "the lengths agree")]
    pub fn to_array<D: Dimension>(&self) -> Result<Array<T, D>, Error> {
        let shape = self.shape();
        if let Some(wanted) = D::NDIM.filter(|&wanted| wanted != shape.len()) {
            return Err(Error::RankMismatch { wanted, found: shape.len() });
        }
        let mut dim = D::zeros(shape.len());
        for (to, &from) in dim.slice_mut().iter_mut().zip(shape) {
            *to = from as usize;
        }
        let array = Array::from_shape_vec(dim, self.to_vec());
        Ok(array.expect("as many elements as the shape has"))
    }
}
