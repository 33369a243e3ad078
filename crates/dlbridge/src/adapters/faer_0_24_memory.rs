//! Where the elements of matrices, columns and rows lie, and views over checked elements.
#![allow(unsafe_code)]

use faer::{Col, ColMut, ColRef, Mat, MatMut, MatRef, Row, RowMut, RowRef, Shape, Stride};

use super::memory::{Strided, StridedMut, ViewMutOf, ViewOf};
use crate::layout::Lists;
use crate::memory::Checked;
use crate::memory::handle::header::Owns;
use crate::{Element, Error, Plain};

/// Where the elements of one of faer's types lie: an extent and a stride for each axis.
macro_rules! strided {
    ([$($generics:tt)*] $ty:ty, $($extent:ident * $stride:ident),+) => {
        // SAFETY: faer's views reach their own elements alone. One that is not initialised was made
        // by an unsafe call, whose duty was that no code reads it (R10).
        unsafe impl<T: Element, $($generics)*> Strided for $ty {
            type Elem = T;
            const OWNS: Owns = Owns::Elements;

            fn axes(&self) -> usize {
                [$(stringify!($extent)),+].len()
            }

            fn describe(&self, lists: &mut Lists<'_>) -> Result<(), Error> {
                let axes = [$((self.$extent().unbound(), self.$stride().element_stride())),+];
                let mut axes = axes.into_iter().enumerate();
                axes.try_for_each(|(axis, (extent, stride))| lists.set(axis, extent, stride))
            }

            fn origin(&self) -> *const T {
                self.as_ptr()
            }
        }
    };
}

/// The same, for a type that has the elements to itself.
macro_rules! strided_mut {
    ([$($generics:tt)*] $ty:ty, $($extent:ident * $stride:ident),+) => {
        strided!([$($generics)*] $ty, $($extent * $stride),+);

        // SAFETY: a unique borrow of the elements (R10).
        unsafe impl<T: Element, $($generics)*> StridedMut for $ty {
            fn origin_mut(&mut self) -> *mut T {
                self.as_ptr_mut()
            }
        }
    };
}

strided_mut!([R: Shape, C: Shape] Mat<T, R, C>, nrows * row_stride, ncols * col_stride);
strided!([R: Shape, C: Shape, RS: Stride, CS: Stride] MatRef<'_, T, R, C, RS, CS>,
    nrows * row_stride, ncols * col_stride);
strided_mut!([R: Shape, C: Shape, RS: Stride, CS: Stride] MatMut<'_, T, R, C, RS, CS>,
    nrows * row_stride, ncols * col_stride);
strided_mut!([R: Shape] Col<T, R>, nrows * row_stride);
strided!([R: Shape, RS: Stride] ColRef<'_, T, R, RS>, nrows * row_stride);
strided_mut!([R: Shape, RS: Stride] ColMut<'_, T, R, RS>, nrows * row_stride);
strided_mut!([C: Shape] Row<T, C>, ncols * col_stride);
strided!([C: Shape, CS: Stride] RowRef<'_, T, C, CS>, ncols * col_stride);
strided_mut!([C: Shape, CS: Stride] RowMut<'_, T, C, CS>, ncols * col_stride);

/// A matrix of these extents, one of which is 0. faer's own functions loop over the columns, of which there
/// can be any number.
pub(super) fn without_elements<T>(mut matrix: Mat<T>, rows: usize, columns: usize) -> Mat<T> {
    assert!(rows == 0 || columns == 0, "no elements");
    // SAFETY: no element comes into bounds, so that none is uninitialised (R10).
    unsafe { matrix.set_dims(rows, columns) };
    matrix
}

/// Extents and strides as faer has them.
fn layout<const AXES: usize>(
    checked: &Checked<'_>,
) -> Result<([usize; AXES], [isize; AXES]), Error> {
    let found = checked.shape().len();
    if found != AXES {
        return Err(Error::ndim(AXES, found));
    }
    let (mut extents, mut strides) = ([0; AXES], [1; AXES]);
    for axis in 0..AXES {
        extents[axis] = checked.shape()[axis] as usize;
        // An axis of extent 1 has no step, nor has an empty matrix: any stride would do.
        if extents[axis] > 1 && checked.len() != 0 {
            strides[axis] = checked.strides()[axis] as isize;
        }
    }
    Ok((extents, strides))
}

impl<'a, T: Plain> ViewOf<'a> for MatRef<'a, T> {
    type Elem = T;

    unsafe fn over(data: *const T, checked: &Checked<'_>) -> Result<Self, Error> {
        let ([rows, columns], [row, column]) = layout(checked)?;
        // SAFETY: every element lies inside the span (R1); that it is alive and not written for `'a` is
        // the caller's duty.
        Ok(unsafe { Self::from_raw_parts(data, rows, columns, row, column) })
    }
}

impl<'a, T: Plain> ViewOf<'a> for ColRef<'a, T> {
    type Elem = T;

    unsafe fn over(data: *const T, checked: &Checked<'_>) -> Result<Self, Error> {
        let ([rows], [row]) = layout(checked)?;
        // SAFETY: every element lies inside the span (R1); that it is alive and not written for `'a` is
        // the caller's duty.
        Ok(unsafe { Self::from_raw_parts(data, rows, row) })
    }
}

impl<'a, T: Plain> ViewMutOf<'a> for MatMut<'a, T> {
    type Elem = T;

    unsafe fn over_mut(data: *mut T, checked: &Checked<'_>) -> Result<Self, Error> {
        let ([rows, columns], [row, column]) = layout(checked)?;
        // SAFETY: as in `MatRef::over`; no two indices reach the same element, and no other code has
        // access (the caller's duty).
        Ok(unsafe { Self::from_raw_parts_mut(data, rows, columns, row, column) })
    }
}

impl<'a, T: Plain> ViewMutOf<'a> for ColMut<'a, T> {
    type Elem = T;

    unsafe fn over_mut(data: *mut T, checked: &Checked<'_>) -> Result<Self, Error> {
        let ([rows], [row]) = layout(checked)?;
        // SAFETY: as in `MatRef::over`; no two indices reach the same element, and no other code has
        // access (the caller's duty).
        Ok(unsafe { Self::from_raw_parts_mut(data, rows, row) })
    }
}
