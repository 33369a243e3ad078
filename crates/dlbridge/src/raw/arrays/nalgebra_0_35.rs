//! `nalgebra` 0.35: where a matrix's elements lie, and views over checked parts.
//! Conversions do not belong here (see `adapters/nalgebra_0_35.rs`).
//! Invariant: as the module's; a matrix type of one column, and no other, has one axis.
//!
//! Views are lent only of columns whose elements lie side by side. With other row strides, nalgebra's
//! own operations form slices across what lies between the elements (R4), and its iterators count
//! past the end of the memory, or, with a row stride of 0, read there.

use nalgebra::{
    Dim, Dyn, Matrix, MatrixView, MatrixViewMut, RawStorage, RawStorageMut, U1, ViewStorage,
    ViewStorageMut,
};

use super::{Lists, Strided, StridedMut};
use crate::Error;
use crate::raw::element::Element;
use crate::raw::{Parts, Plain};

// SAFETY: `RawStorage`'s duty: the elements of the matrix lie from `ptr` on, by its strides.
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

/// Which axis the rows run along.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// The first: the matrix is what the tensor is.
    First,
    /// The second: the matrix is the tensor's transpose.
    Second,
}

/// The dimensions of a shape, if they are what the types say.
pub(crate) fn dims<R: Dim, C: Dim>(shape: &[i64], rows: Rows) -> Result<(R, C), Error> {
    match (shape, rows) {
        (&[first, second], Rows::First) => Ok((dim(0, first)?, dim(1, second)?)),
        (&[first, second], Rows::Second) => Ok((dim(1, second)?, dim(0, first)?)),
        (&[first], Rows::First) if C::is::<U1>() => Ok((dim(0, first)?, C::from_usize(1))),
        _ => {
            let wanted = if C::is::<U1>() && rows == Rows::First { 1 } else { 2 };
            Err(Error::RankMismatch { wanted, found: shape.len() })
        }
    }
}

fn dim<D: Dim>(axis: usize, found: i64) -> Result<D, Error> {
    match D::try_to_usize() {
        Some(wanted) if found != wanted as i64 => {
            Err(Error::ExtentMismatch { axis, found, wanted })
        }
        _ => Ok(D::from_usize(found as usize)),
    }
}

/// The column stride, if the elements of a column lie side by side.
fn column_stride(parts: &Parts<'_>, rows: Rows) -> Result<Dyn, Error> {
    let (row_axis, column_axis) = match rows {
        Rows::First => (0, 1),
        Rows::Second => (1, 0),
    };
    // An axis of extent 1 has no step, nor has an empty matrix: any stride would do.
    let moves =
        |axis| parts.shape().get(axis).is_some_and(|&extent| extent > 1) && parts.len() != 0;
    let mismatch =
        |axis, wanted| Err(Error::StrideMismatch { axis, stride: parts.strides()[axis], wanted });
    if moves(row_axis) && parts.strides()[row_axis] != 1 {
        return mismatch(row_axis, "1 along a column (to_matrix copies others)");
    }
    if !moves(column_axis) {
        return Ok(Dyn(parts.shape()[row_axis] as usize));
    }
    match usize::try_from(parts.strides()[column_axis]) {
        Ok(stride) => Ok(Dyn(stride)),
        Err(_) => mismatch(column_axis, "0 or more"),
    }
}

impl<'a> Parts<'a> {
    /// The elements as a matrix view, if nobody can write them meanwhile.
    pub(crate) fn matrix<T, R, C>(
        self,
        rows: Rows,
    ) -> Result<MatrixView<'a, T, R, C, U1, Dyn>, Error>
    where
        T: Plain,
        R: Dim,
        C: Dim,
    {
        self.check_dtype(T::DTYPE)?;
        self.check_unwritten()?;
        // SAFETY: nobody writes the elements (R4).
        unsafe { self.matrix_unchecked(rows) }
    }

    /// The elements as a matrix view, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody writes the elements for `'a`.
    pub(crate) unsafe fn matrix_unchecked<T, R, C>(
        self,
        rows: Rows,
    ) -> Result<MatrixView<'a, T, R, C, U1, Dyn>, Error>
    where
        T: Plain,
        R: Dim,
        C: Dim,
    {
        let data = self.typed_data::<T>()?;
        let shape = dims(self.shape(), rows)?;
        let strides = (U1, column_stride(&self, rows)?);
        // SAFETY: every element lies inside the span (R1) and is alive for `'a` (R2); that nobody
        // writes is the caller's duty.
        let storage = unsafe { ViewStorage::from_raw_parts(data, shape, strides) };
        Ok(Matrix::from_data(storage))
    }

    /// The elements as a mutable matrix view.
    ///
    /// # Safety
    ///
    /// `self` was borrowed mutably for `'a` from its owner.
    pub(crate) unsafe fn matrix_mut<T, R, C>(
        self,
        rows: Rows,
    ) -> Result<MatrixViewMut<'a, T, R, C, U1, Dyn>, Error>
    where
        T: Plain,
        R: Dim,
        C: Dim,
    {
        self.check_dtype(T::DTYPE)?;
        self.check_exclusive()?;
        // SAFETY: nobody else can reach the elements (R4, and the caller's duty).
        unsafe { self.matrix_mut_unchecked(rows) }
    }

    /// The elements as a mutable matrix view, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the elements for `'a`.
    pub(crate) unsafe fn matrix_mut_unchecked<T, R, C>(
        self,
        rows: Rows,
    ) -> Result<MatrixViewMut<'a, T, R, C, U1, Dyn>, Error>
    where
        T: Plain,
        R: Dim,
        C: Dim,
    {
        self.check_lent_mutably()?;
        let data = self.typed_data::<T>()?;
        let shape = dims(self.shape(), rows)?;
        let strides = (U1, column_stride(&self, rows)?);
        // SAFETY: as in `matrix_unchecked`; no two indices reach the same element (checked
        // above), and nobody else has access (the caller's duty).
        let storage = unsafe { ViewStorageMut::from_raw_parts(data, shape, strides) };
        Ok(Matrix::from_data(storage))
    }
}
