//! `nalgebra` 0.35, both ways. Feature `nalgebra-0_35`.
//!
//! | from | to | copies |
//! | --- | --- | --- |
//! | a matrix or vector; `Arc<Matrix>`, read-only | [`Tensor`], by `From` | no |
//! | references to these, and to views of them | [`TensorRef`], [`TensorMut`], by `From` | no |
//! | a tensor that no other code writes, with contiguous columns | `MatrixView` | no |
//! | the same, row-major | [`Transposed<MatrixView>`](Transposed) | no |
//! | a tensor that no other code has, likewise | `MatrixViewMut`, `Transposed<MatrixViewMut>` | no |
//! | any tensor in host memory, or its [`View`] | `OMatrix`: `DMatrix`, `SMatrix`, `DVector`, ... | yes |
//!
//! A type of one column has one axis, every other type two. Views have unit row strides; their column
//! stride is `Dyn`, or fixed by the type.
//!
//! ```
//! use dlbridge::Tensor;
//! use nalgebra::{DMatrix, DMatrixView, DVector, Matrix2x3, MatrixView2x3};
//!
//! let tensor = Tensor::from(DMatrix::from_row_slice(2, 3, &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
//! assert_eq!((tensor.shape(), tensor.strides()), (&[2, 3][..], &[1, 2][..]));
//! assert_eq!(tensor.view_as::<DMatrixView<f32>>()?[(1, 0)], 4.0);
//! assert_eq!(tensor.view_as::<MatrixView2x3<f32>>()?.row(1).sum(), 15.0);
//! assert_eq!(tensor.copy_as::<Matrix2x3<f32>>()?.m23, 6.0);
//!
//! assert_eq!(Tensor::from(DVector::from_element(3, 0.5)).shape(), [3]);
//! # Ok::<(), dlbridge::Error>(())
//! ```

use std::sync::Arc;

use nalgebra::allocator::Allocator;
use nalgebra::{
    Const, DefaultAllocator, Dim, Dyn, Matrix, MatrixView, MatrixViewMut, OMatrix, RawStorage,
    RawStorageMut, SMatrix, Scalar, U1, VecStorage,
};

use super::describable;
use super::memory::{borrow, borrow_mut, export, export_frozen};
pub use super::nalgebra_0_35_memory::Transposed;
use super::nalgebra_0_35_memory::{Rows, dims};
use crate::{Element, Error, Parts, Plain, Tensor, TensorMut, TensorRef, View};

/// A matrix becomes a column-major tensor of two axes, a vector (a type of one column) one of one
/// axis, without a copy. Statically sized ones move into the tensor's own allocation.
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
        borrow(matrix)
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
        borrow_mut(matrix)
    }
}

views!(['a, T: Plain, R: Dim, C: Dim, S: Dim] MatrixView<'a, T, R, C, U1, S>);
views!(['a, T: Plain, R: Dim, C: Dim, S: Dim] Transposed<MatrixView<'a, T, R, C, U1, S>>);
views_mut!(['a, T: Plain, R: Dim, C: Dim, S: Dim] MatrixViewMut<'a, T, R, C, U1, S>);
views_mut!(['a, T: Plain, R: Dim, C: Dim, S: Dim] Transposed<MatrixViewMut<'a, T, R, C, U1, S>>);
// Every `OMatrix` is one of these three: coherence needs their storages to be named.
copies!([T: Element + Scalar, C: Dim] T => Matrix<T, Dyn, C, VecStorage<T, Dyn, C>>, copied);
copies!([T: Element + Scalar, const R: usize] T =>
    Matrix<T, Const<R>, Dyn, VecStorage<T, Const<R>, Dyn>>, copied);
copies!([T: Element + Scalar, const R: usize, const C: usize] T => SMatrix<T, R, C>, copied);

fn copied<T, R, C>(view: &View<'_, T>) -> Result<OMatrix<T, R, C>, Error>
where
    T: Element + Scalar,
    R: Dim,
    C: Dim,
    DefaultAllocator: Allocator<R, C>,
{
    let (rows, columns) = dims(view.shape(), Rows::First)?;
    if R::try_to_usize().is_some() && C::try_to_usize().is_some() {
        return Ok(OMatrix::from_row_iterator_generic(rows, columns, view.iter()));
    }
    // Column by column, in a vector whose allocation becomes that of the matrix.
    let elements = view.transpose().view().elements.to_vec()?;
    Ok(OMatrix::from_iterator_generic(rows, columns, elements))
}
