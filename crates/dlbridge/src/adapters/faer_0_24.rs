//! `faer` 0.24, both ways: matrices have two axes, columns and rows one.
//! Where their memory lies is told in `raw/arrays/faer_0_24.rs`.
//! Invariant: shape and strides survive as they are, in either direction.

use std::sync::Arc;

use faer::{Col, ColMut, ColRef, Mat, MatMut, MatRef, Row, RowMut, RowRef, Shape, Stride};

use super::describable;
use crate::raw::arrays::{export, export_frozen};
use crate::raw::exclusive;
use crate::{Element, Error, Plain, Tensor, TensorMut, TensorRef, View};

/// A matrix becomes a column-major tensor without a copy; what faer leaves free between its
/// columns stays out of it.
///
/// ```
/// use dlbridge::Tensor;
/// use faer::mat;
///
/// let tensor = Tensor::from(mat![[1.0_f64, 2.0], [3.0, 4.0], [5.0, 6.0]]);
/// assert_eq!((tensor.shape(), tensor.strides()[0]), (&[3, 2][..], 1));
/// assert_eq!(tensor.as_mat::<f64>()?[(2, 1)], 6.0);
/// # Ok::<(), dlbridge::Error>(())
/// ```
///
/// # Panics
///
/// If the matrix is empty and one of its extents is above `isize::MAX`.
impl<T, R, C> From<Mat<T, R, C>> for Tensor
where
    T: Element,
    R: Shape + Send + 'static,
    C: Shape + Send + 'static,
{
    fn from(matrix: Mat<T, R, C>) -> Self {
        Self(describable(export(matrix)))
    }
}

/// A shared matrix becomes a read-only tensor without a copy.
///
/// # Panics
///
/// If the matrix is empty and one of its extents is above `isize::MAX`.
impl<T, R, C> From<Arc<Mat<T, R, C>>> for Tensor
where
    T: Element,
    R: Shape + Send + Sync + 'static,
    C: Shape + Send + Sync + 'static,
{
    fn from(matrix: Arc<Mat<T, R, C>>) -> Self {
        Self(describable(export_frozen(matrix)))
    }
}

/// A column becomes a tensor of one axis without a copy.
impl<T: Element, R: Shape + Send + 'static> From<Col<T, R>> for Tensor {
    fn from(column: Col<T, R>) -> Self {
        Self(describable(export(column)))
    }
}

/// A row becomes a tensor of one axis without a copy.
impl<T: Element, C: Shape + Send + 'static> From<Row<T, C>> for Tensor {
    fn from(row: Row<T, C>) -> Self {
        Self(describable(export(row)))
    }
}

/// A borrow of what only reads.
macro_rules! borrow {
    ([$($generics:tt)*] $ty:ty) => {
        /// The elements are described as they lie, read-only.
        ///
        /// # Panics
        ///
        /// If no tensor can have the shape: a view that repeats its elements has more of them, or
        /// more bytes, than fit `isize`, or an empty one has an extent above that.
        impl<'a, T: Element, $($generics)*> From<&'a $ty> for TensorRef<'a> {
            fn from(elements: &'a $ty) -> Self {
                Self::of_array(elements)
            }
        }
    };
}

/// Both borrows of what may be written.
macro_rules! borrow_mut {
    ([$($generics:tt)*] $ty:ty) => {
        borrow!([$($generics)*] $ty);

        /// The elements are described as they lie, writable.
        ///
        /// # Panics
        ///
        /// If no tensor can have the shape, as for a shared borrow.
        impl<'a, T: Element, $($generics)*> From<&'a mut $ty> for TensorMut<'a> {
            fn from(elements: &'a mut $ty) -> Self {
                Self::of_array(elements)
            }
        }
    };
}

borrow_mut!([R: Shape, C: Shape] Mat<T, R, C>);
borrow!([R: Shape, C: Shape, RS: Stride, CS: Stride] MatRef<'_, T, R, C, RS, CS>);
borrow_mut!([R: Shape, C: Shape, RS: Stride, CS: Stride] MatMut<'_, T, R, C, RS, CS>);
borrow_mut!([R: Shape] Col<T, R>);
borrow!([R: Shape, RS: Stride] ColRef<'_, T, R, RS>);
borrow_mut!([R: Shape, RS: Stride] ColMut<'_, T, R, RS>);
borrow_mut!([C: Shape] Row<T, C>);
borrow!([C: Shape, CS: Stride] RowRef<'_, T, C, CS>);
borrow_mut!([C: Shape, CS: Stride] RowMut<'_, T, C, CS>);

/// Borrowing and copying as matrices and columns, for everything that reads.
macro_rules! as_mat {
    ($tensor:ty) => {
        impl $tensor {
            /// The elements of two axes as a faer view, if nobody can write them meanwhile (class
            /// [`Exclusive`](crate::Access::Exclusive) or [`Frozen`](crate::Access::Frozen)).
            /// Any strides.
            ///
            /// # Errors
            ///
            /// [`SharedMemory`](Error::SharedMemory), whose message names the ways out;
            /// [`DTypeMismatch`](Error::DTypeMismatch), [`RankMismatch`](Error::RankMismatch),
            /// [`NotHostAccessible`](Error::NotHostAccessible) or
            /// [`Misaligned`](Error::Misaligned).
            pub fn as_mat<T: Plain>(&self) -> Result<MatRef<'_, T>, Error> {
                self.parts().mat()
            }

            /// The elements of one axis as a faer column, under the same conditions. Its
            /// `transpose` is a row.
            ///
            /// # Errors
            ///
            /// As [`as_mat`](Self::as_mat).
            pub fn as_col<T: Plain>(&self) -> Result<ColRef<'_, T>, Error> {
                self.parts().column()
            }

            /// A copy of the elements of two axes as a matrix, for every class.
            ///
            /// # Errors
            ///
            /// [`DTypeMismatch`](Error::DTypeMismatch), [`RankMismatch`](Error::RankMismatch) or
            /// [`NotHostAccessible`](Error::NotHostAccessible).
            pub fn to_mat<T: Element>(&self) -> Result<Mat<T>, Error> {
                let view = self.view::<T>()?;
                let &[rows, columns] = view.shape() else { return Err(wanted(2, &view)) };
                Ok(Mat::from_fn(rows as usize, columns as usize, |i, j| at(&view, &[i, j])))
            }

            /// A copy of the elements of one axis as a column, for every class.
            ///
            /// # Errors
            ///
            /// As [`to_mat`](Self::to_mat).
            pub fn to_col<T: Element>(&self) -> Result<Col<T>, Error> {
                let view = self.view::<T>()?;
                let &[rows] = view.shape() else { return Err(wanted(1, &view)) };
                Ok(Col::from_fn(rows as usize, |i| at(&view, &[i])))
            }
        }
    };
}

as_mat!(Tensor);
as_mat!(TensorRef<'_>);
as_mat!(TensorMut<'_>);

/// Borrowing mutably as a matrix or a column.
macro_rules! as_mat_mut {
    ($tensor:ty) => {
        impl $tensor {
            /// The elements of two axes as a mutable faer view, if nobody else has them (class
            /// [`Exclusive`](crate::Access::Exclusive)). Any strides without overlap.
            ///
            /// # Errors
            ///
            /// [`ReadOnly`](Error::ReadOnly), [`Overlapping`](Error::Overlapping), and those of
            /// [`as_mat`](Self::as_mat).
            pub fn as_mat_mut<T: Plain>(&mut self) -> Result<MatMut<'_, T>, Error> {
                exclusive::mat_mut(&mut self.0)
            }

            /// The elements of one axis as a mutable faer column, under the same conditions.
            ///
            /// # Errors
            ///
            /// As [`as_mat_mut`](Self::as_mat_mut).
            pub fn as_col_mut<T: Plain>(&mut self) -> Result<ColMut<'_, T>, Error> {
                exclusive::column_mut(&mut self.0)
            }
        }
    };
}

as_mat_mut!(Tensor);
as_mat_mut!(TensorMut<'_>);

fn wanted<T: Element>(wanted: usize, view: &View<'_, T>) -> Error {
    Error::RankMismatch { wanted, found: view.shape().len() }
}

fn at<T: Element>(view: &View<'_, T>, index: &[usize]) -> T {
    view.get(index).expect("an index inside the shape")
}
