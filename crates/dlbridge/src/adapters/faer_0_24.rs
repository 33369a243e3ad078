//! `faer` 0.24, both ways. Feature `faer-0_24`.
//!
//! | from | to | copies |
//! | --- | --- | --- |
//! | `Mat`, `Col`, `Row`; `Arc<Mat>`, read-only | [`Tensor`], by `From` | no |
//! | references to these, and to `MatRef`, `MatMut` and the like | [`TensorRef`], [`TensorMut`], by `From` | no |
//! | a tensor that no other code writes | `MatRef` (2 axes), `ColRef` (1 axis) | no |
//! | a tensor that no other code has | `MatMut`, `ColMut`, where no elements overlap | no |
//! | any tensor in host memory, or its [`View`] | `Mat`, `Col` | yes |
//!
//! Shape and strides stay as they are. The transpose of a `ColRef` is a `RowRef`.
//!
//! ```
//! use dlbridge::Tensor;
//! use faer::{MatMut, MatRef, mat};
//!
//! let mut tensor = Tensor::from(mat![[1.0_f64, 2.0], [3.0, 4.0], [5.0, 6.0]]);
//! assert_eq!((tensor.shape(), tensor.strides()[0]), (&[3, 2][..], 1));
//! assert_eq!(tensor.view_as::<MatRef<f64>>()?[(2, 1)], 6.0);
//! tensor.view_mut_as::<MatMut<f64>>()?.fill(0.5);
//! # Ok::<(), dlbridge::Error>(())
//! ```

use std::sync::Arc;

use faer::{Col, ColMut, ColRef, Mat, MatMut, MatRef, Row, RowMut, RowRef, Shape, Stride};

use super::describable;
use super::memory::{borrow, borrow_mut, export, export_frozen};
use crate::{Element, Error, Plain, Tensor, TensorMut, TensorRef, View};

/// A matrix becomes a column-major tensor without a copy; the padding between its columns is not part of
/// it.
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
                borrow(elements)
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
                borrow_mut(elements)
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

views!(['a, T: Plain] MatRef<'a, T>);
views!(['a, T: Plain] ColRef<'a, T>);
views_mut!(['a, T: Plain] MatMut<'a, T>);
views_mut!(['a, T: Plain] ColMut<'a, T>);
copies!([T: Element] T => Mat<T>, matrix);
copies!([T: Element] T => Col<T>, column);

fn matrix<T: Element>(view: &View<'_, T>) -> Result<Mat<T>, Error> {
    let &[rows, columns] = view.shape() else { return Err(expected(2, view)) };
    let (rows, columns) = (rows as usize, columns as usize);
    let mut matrix = Mat::new();
    matrix.try_reserve(rows, columns).map_err(|_| no_memory(view))?;
    if view.is_empty() {
        return Ok(super::faer_0_24_memory::without_elements(matrix, rows, columns));
    }
    matrix.resize_with(rows, columns, |i, j| at(view, &[i, j]));
    Ok(matrix)
}

fn column<T: Element>(view: &View<'_, T>) -> Result<Col<T>, Error> {
    let &[rows] = view.shape() else { return Err(expected(1, view)) };
    let mut column = Col::from_fn(0, |_| unreachable!("no rows"));
    column.try_reserve(rows as usize).map_err(|_| no_memory(view))?;
    column.resize_with(rows as usize, |i| at(view, &[i]));
    Ok(column)
}

/// faer's matrices have room between their columns, which is not counted.
fn no_memory<T: Element>(view: &View<'_, T>) -> Error {
    Error::OutOfMemory { size: view.elements.checked().nbytes() }
}

fn expected<T: Element>(expected: usize, view: &View<'_, T>) -> Error {
    Error::ndim(expected, view.shape().len())
}

fn at<T: Element>(view: &View<'_, T>, index: &[usize]) -> T {
    view.get(index).expect("an index inside the shape")
}
