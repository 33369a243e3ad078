//! `nalgebra` 0.35, both ways.
//! Where a matrix's memory lies is told in `raw/arrays/nalgebra_0_35.rs`.
//! Invariant: shape and strides survive as they are; a type of one column has one axis.

use std::sync::Arc;

use nalgebra::allocator::Allocator;
use nalgebra::{
    DefaultAllocator, Dim, Dyn, Matrix, MatrixView, MatrixViewMut, OMatrix, RawStorage,
    RawStorageMut, Scalar, U1,
};

use super::describable;
use crate::raw::arrays::nalgebra_0_35::{Rows, dims};
use crate::raw::arrays::{export, export_frozen};
use crate::raw::exclusive;
use crate::{Element, Error, Plain, Tensor, TensorMut, TensorRef};

/// A matrix becomes a column-major tensor of two axes, a vector (a type of one column) one of one
/// axis, without a copy. Statically sized ones move into the tensor's own allocation.
///
/// ```
/// use dlbridge::Tensor;
/// use nalgebra::{DMatrix, DVector, Dyn};
///
/// let tensor = Tensor::from(DMatrix::from_row_slice(2, 3, &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
/// assert_eq!((tensor.shape(), tensor.strides()), (&[2, 3][..], &[1, 2][..]));
/// assert_eq!(tensor.as_matrix::<f32, Dyn, Dyn>()?[(1, 0)], 4.0);
///
/// assert_eq!(Tensor::from(DVector::from_element(3, 0.5)).shape(), [3]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
///
/// # Panics
///
/// If no tensor can have the matrix's shape: an empty matrix has an extent above `isize::MAX`, or a
/// storage that repeats its elements has more of them, or more bytes, than fit `isize`.
impl<T, R, C, S> From<Matrix<T, R, C, S>> for Tensor
where
    T: Element,
    R: Dim,
    C: Dim,
    S: RawStorageMut<T, R, C> + Send + 'static,
{
    fn from(matrix: Matrix<T, R, C, S>) -> Self {
        Self(describable(export(matrix)))
    }
}

/// A shared matrix becomes a read-only tensor without a copy.
///
/// # Panics
///
/// If no tensor can have the matrix's shape, as for a matrix that is not shared.
impl<T, R, C, S> From<Arc<Matrix<T, R, C, S>>> for Tensor
where
    T: Element,
    R: Dim,
    C: Dim,
    S: RawStorage<T, R, C> + Send + Sync + 'static,
{
    fn from(matrix: Arc<Matrix<T, R, C, S>>) -> Self {
        Self(describable(export_frozen(matrix)))
    }
}

/// A matrix or a view of one is described as it lies, read-only.
///
/// # Panics
///
/// If no tensor can have the matrix's shape: an empty matrix has an extent above `isize::MAX`, or a
/// view that repeats its elements has more of them, or more bytes, than fit `isize`.
impl<'a, T, R, C, S> From<&'a Matrix<T, R, C, S>> for TensorRef<'a>
where
    T: Element,
    R: Dim,
    C: Dim,
    S: RawStorage<T, R, C>,
{
    fn from(matrix: &'a Matrix<T, R, C, S>) -> Self {
        Self::of_array(matrix)
    }
}

/// A matrix or a view of one is described as it lies, writable.
///
/// # Panics
///
/// If no tensor can have the matrix's shape, as for a shared borrow.
impl<'a, T, R, C, S> From<&'a mut Matrix<T, R, C, S>> for TensorMut<'a>
where
    T: Element,
    R: Dim,
    C: Dim,
    S: RawStorageMut<T, R, C>,
{
    fn from(matrix: &'a mut Matrix<T, R, C, S>) -> Self {
        Self::of_array(matrix)
    }
}

/// Borrowing and copying as matrices, for everything that reads.
macro_rules! as_matrix {
    ($tensor:ty) => {
        impl $tensor {
            /// The elements as a nalgebra view, if nobody can write them meanwhile (class
            /// [`Exclusive`](crate::Access::Exclusive) or [`Frozen`](crate::Access::Frozen)).
            ///
            /// Two axes, or one where `C` is one column. Each column lies side by side, as nalgebra
            /// has its own; columns may lie apart. Row-major tensors are
            /// [transposed](Self::as_transposed_matrix), or copied.
            ///
            /// # Errors
            ///
            /// [`SharedMemory`](Error::SharedMemory), whose message names the ways out;
            /// [`DTypeMismatch`](Error::DTypeMismatch), [`RankMismatch`](Error::RankMismatch),
            /// [`ExtentMismatch`](Error::ExtentMismatch) for `R` or `C` of another static size,
            /// [`StrideMismatch`](Error::StrideMismatch),
            /// [`NotHostAccessible`](Error::NotHostAccessible) or
            /// [`Misaligned`](Error::Misaligned).
            pub fn as_matrix<T: Plain, R: Dim, C: Dim>(
                &self,
            ) -> Result<MatrixView<'_, T, R, C, U1, Dyn>, Error> {
                self.parts().matrix(Rows::First)
            }

            /// The transpose of a row-major tensor of two axes as a nalgebra view, under the same
            /// conditions: its `R` rows run along the second axis.
            ///
            /// ```
            /// use dlbridge::Tensor;
            /// use nalgebra::{U2, U3, Vector2, Vector3};
            ///
            /// let tensor = Tensor::builder(vec![1, 2, 3, 4, 5, 6]).shape(&[2, 3]).build()?;
            /// let transpose = tensor.as_transposed_matrix::<i32, U3, U2>()?;
            /// assert_eq!(transpose * Vector2::new(1, 10), Vector3::new(41, 52, 63));
            /// # Ok::<(), dlbridge::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`as_matrix`](Self::as_matrix).
            pub fn as_transposed_matrix<T: Plain, R: Dim, C: Dim>(
                &self,
            ) -> Result<MatrixView<'_, T, R, C, U1, Dyn>, Error> {
                self.parts().matrix(Rows::Second)
            }

            /// A copy of the elements as an owned matrix or vector, for every class and layout.
            ///
            /// # Errors
            ///
            /// [`DTypeMismatch`](Error::DTypeMismatch), [`RankMismatch`](Error::RankMismatch),
            /// [`ExtentMismatch`](Error::ExtentMismatch) or
            /// [`NotHostAccessible`](Error::NotHostAccessible).
            pub fn to_matrix<T, R, C>(&self) -> Result<OMatrix<T, R, C>, Error>
            where
                T: Element + Scalar,
                R: Dim,
                C: Dim,
                DefaultAllocator: Allocator<R, C>,
            {
                let view = self.view::<T>()?;
                let (rows, columns) = dims(view.shape(), Rows::First)?;
                Ok(OMatrix::from_row_iterator_generic(rows, columns, view.iter()))
            }
        }
    };
}

as_matrix!(Tensor);
as_matrix!(TensorRef<'_>);
as_matrix!(TensorMut<'_>);

/// Borrowing mutably as a matrix.
macro_rules! as_matrix_mut {
    ($tensor:ty) => {
        impl $tensor {
            /// The elements as a mutable nalgebra view, if nobody else has them (class
            /// [`Exclusive`](crate::Access::Exclusive)).
            ///
            /// # Errors
            ///
            /// [`ReadOnly`](Error::ReadOnly), [`Overlapping`](Error::Overlapping), and those of
            /// [`as_matrix`](Self::as_matrix).
            pub fn as_matrix_mut<T: Plain, R: Dim, C: Dim>(
                &mut self,
            ) -> Result<MatrixViewMut<'_, T, R, C, U1, Dyn>, Error> {
                exclusive::matrix_mut(&mut self.0, Rows::First)
            }

            /// The transpose of a row-major tensor as a mutable nalgebra view, under the same
            /// conditions.
            ///
            /// # Errors
            ///
            /// As [`as_matrix_mut`](Self::as_matrix_mut).
            pub fn as_transposed_matrix_mut<T: Plain, R: Dim, C: Dim>(
                &mut self,
            ) -> Result<MatrixViewMut<'_, T, R, C, U1, Dyn>, Error> {
                exclusive::matrix_mut(&mut self.0, Rows::Second)
            }
        }
    };
}

as_matrix_mut!(Tensor);
as_matrix_mut!(TensorMut<'_>);
