//! Where a matrix's elements lie, and views over checked elements. A matrix type of one column, and
//! no other, has one axis.
//!
//! Views need contiguous columns. With other row strides, nalgebra's own operations form slices across
//! the gaps between the elements (R4), and its iterators count past the end of the memory, or, with a
//! row stride of 0, read there.
#![allow(unsafe_code)]

use nalgebra::{
    Dim, Matrix, MatrixView, MatrixViewMut, RawStorage, RawStorageMut, U1, ViewStorage,
    ViewStorageMut,
};

use super::memory::{Strided, StridedMut, ViewMutOf, ViewOf};
use crate::layout::Lists;
use crate::memory::Checked;
use crate::{Element, Error, Plain};

// SAFETY: `RawStorage`'s duty: the elements of the matrix lie from `ptr` on, by its strides (R10).
unsafe impl<T, R, C, S> Strided for Matrix<T, R, C, S>
where
    T: Element,
    R: Dim,
    C: Dim,
    S: RawStorage<T, R, C>,
{
    type Elem = T;

    fn axes(&self) -> usize {
        if C::is::<U1>() { 1 } else { 2 }
    }

    fn describe(&self, lists: &mut Lists<'_>) -> Result<(), Error> {
        let (rows, columns) = self.data.shape();
        let (row_stride, column_stride) = self.data.strides();
        lists.set(0, rows.value(), row_stride.value())?;
        // A vector's lists have room for its rows alone.
        lists.set(1, columns.value(), column_stride.value())
    }

    fn origin(&self) -> *const T {
        self.data.ptr()
    }
}

// SAFETY: `RawStorageMut` makes the elements this matrix's alone (R10).
unsafe impl<T, R, C, S> StridedMut for Matrix<T, R, C, S>
where
    T: Element,
    R: Dim,
    C: Dim,
    S: RawStorageMut<T, R, C>,
{
    fn origin_mut(&mut self) -> *mut T {
        self.data.ptr_mut()
    }
}

/// The transpose of a row-major tensor of two axes, as a view `V`: its rows run along the tensor's
/// second axis, so that no copy is needed.
///
/// ```
/// use dlbridge::Tensor;
/// use dlbridge::nalgebra_0_35::Transposed;
/// use nalgebra::{MatrixView3x2, Vector2, Vector3};
///
/// let tensor = Tensor::builder(vec![1, 2, 3, 4, 5, 6]).shape([2, 3]).build()?;
/// let Transposed(transpose) = tensor.view_as::<Transposed<MatrixView3x2<i32>>>()?;
/// assert_eq!(transpose * Vector2::new(1, 10), Vector3::new(41, 52, 63));
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transposed<V>(pub V);

/// Which axis the rows run along.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    /// The first: the matrix is what the tensor is.
    First,
    /// The second: the matrix is the tensor's transpose.
    Second,
}

/// The dimensions of a shape, if they are what the types say.
pub(super) fn dims<R: Dim, C: Dim>(shape: &[i64], rows: Rows) -> Result<(R, C), Error> {
    match (shape, rows) {
        (&[first, second], Rows::First) => Ok((dim(0, first)?, dim(1, second)?)),
        (&[first, second], Rows::Second) => Ok((dim(1, second)?, dim(0, first)?)),
        (&[first], Rows::First) if C::is::<U1>() => Ok((dim(0, first)?, C::from_usize(1))),
        _ => {
            let expected = if C::is::<U1>() && rows == Rows::First { 1 } else { 2 };
            Err(Error::ndim(expected, shape.len()))
        }
    }
}

fn dim<D: Dim>(axis: usize, found: i64) -> Result<D, Error> {
    match D::try_to_usize() {
        Some(expected) if found != expected as i64 => Err(Error::extent(axis, expected, found)),
        _ => Ok(D::from_usize(found as usize)),
    }
}

/// The column stride, if the columns are contiguous and the stride's type has it.
fn column_stride<S: Dim>(checked: &Checked<'_>, rows: Rows) -> Result<S, Error> {
    let (row_axis, column_axis) = match rows {
        Rows::First => (0, 1),
        Rows::Second => (1, 0),
    };
    // An axis of extent 1 has no step, nor has an empty matrix: any stride would do.
    let moves =
        |axis| checked.shape().get(axis).is_some_and(|&extent| extent > 1) && checked.len() != 0;
    let mismatch = |axis, expected| {
        Err(Error::StrideMismatch { axis, stride: checked.strides()[axis], expected })
    };
    if moves(row_axis) && checked.strides()[row_axis] != 1 {
        return mismatch(row_axis, "1 along a column (if row-major, use `Transposed`)");
    }
    if !moves(column_axis) {
        let rows = checked.shape()[row_axis] as usize;
        return Ok(S::from_usize(S::try_to_usize().unwrap_or(rows)));
    }
    match (usize::try_from(checked.strides()[column_axis]), S::try_to_usize()) {
        (Err(_), _) => mismatch(column_axis, "0 or more"),
        (Ok(stride), Some(fixed)) if stride != fixed => {
            mismatch(column_axis, "the column stride of the view's type (`Dyn` is any)")
        }
        (Ok(stride), _) => Ok(S::from_usize(stride)),
    }
}

/// A view whose rows run along an axis.
///
/// # Safety
///
/// As for [`ViewOf::over`].
unsafe fn over<'a, T: Plain, R: Dim, C: Dim, S: Dim>(
    data: *const T,
    checked: &Checked<'_>,
    rows: Rows,
) -> Result<MatrixView<'a, T, R, C, U1, S>, Error> {
    let shape = dims(checked.shape(), rows)?;
    let strides = (U1, column_stride(checked, rows)?);
    // SAFETY: every element lies inside the span (R1); that it is alive and not written for `'a` is
    // the caller's duty.
    let storage = unsafe { ViewStorage::from_raw_parts(data, shape, strides) };
    Ok(Matrix::from_data(storage))
}

/// A mutable view whose rows run along an axis.
///
/// # Safety
///
/// As for [`ViewMutOf::over_mut`].
unsafe fn over_mut<'a, T: Plain, R: Dim, C: Dim, S: Dim>(
    data: *mut T,
    checked: &Checked<'_>,
    rows: Rows,
) -> Result<MatrixViewMut<'a, T, R, C, U1, S>, Error> {
    let shape = dims(checked.shape(), rows)?;
    let strides = (U1, column_stride(checked, rows)?);
    // SAFETY: as in `over`; no two indices reach the same element, and no other code has access (the
    // caller's duty).
    let storage = unsafe { ViewStorageMut::from_raw_parts(data, shape, strides) };
    Ok(Matrix::from_data(storage))
}

macro_rules! views {
    ($($trait:ident::$function:ident($data:ty): $rows:ident, $target:ty, $wrap:expr;)*) => {$(
        impl<'a, T: Plain, R: Dim, C: Dim, S: Dim> $trait<'a> for $target {
            type Elem = T;

            unsafe fn $function(data: $data, checked: &Checked<'_>) -> Result<Self, Error> {
                // SAFETY: the caller's duty.
                unsafe { $function(data, checked, Rows::$rows) }.map($wrap)
            }
        }
    )*};
}

views! {
    ViewOf::over(*const T): First, MatrixView<'a, T, R, C, U1, S>, |view| view;
    ViewOf::over(*const T): Second,
        Transposed<MatrixView<'a, T, R, C, U1, S>>, Transposed;
    ViewMutOf::over_mut(*mut T): First,
        MatrixViewMut<'a, T, R, C, U1, S>, |view| view;
    ViewMutOf::over_mut(*mut T): Second,
        Transposed<MatrixViewMut<'a, T, R, C, U1, S>>, Transposed;
}
