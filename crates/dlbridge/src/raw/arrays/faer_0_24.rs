//! `faer` 0.24: where the elements of matrices, columns and rows lie, and views over checked parts.
//! Conversions do not belong here (see `adapters/faer_0_24.rs`).
//! Invariant: as the module's; a matrix has two axes, a column or a row one.

use faer::{Col, ColMut, ColRef, Mat, MatMut, MatRef, Row, RowMut, RowRef, Shape, Stride};

use super::{Lists, Strided, StridedMut};
use crate::Error;
use crate::raw::element::Element;
use crate::raw::{Parts, Plain};

/// Where the elements of one of faer's types lie: an extent and a stride for each axis.
macro_rules! strided {
    ([$($generics:tt)*] $ty:ty, $($extent:ident * $stride:ident),+) => {
        // SAFETY: faer's views reach their own elements alone. One that is not initialised was made
        // by an unsafe call, whose duty was to let nobody read it (R10).
        unsafe impl<T: Element, $($generics)*> Strided for $ty {
            type Elem = T;

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

/// Extents and strides as faer has them.
fn layout<const AXES: usize>(parts: &Parts<'_>) -> Result<([usize; AXES], [isize; AXES]), Error> {
    let found = parts.shape().len();
    if found != AXES {
        return Err(Error::RankMismatch { wanted: AXES, found });
    }
    let (mut extents, mut strides) = ([0; AXES], [1; AXES]);
    for axis in 0..AXES {
        extents[axis] = parts.shape()[axis] as usize;
        // An axis of extent 1 has no step, nor has an empty matrix: any stride would do.
        if extents[axis] > 1 && parts.len() != 0 {
            strides[axis] = parts.strides()[axis] as isize;
        }
    }
    Ok((extents, strides))
}

impl<'a> Parts<'a> {
    /// The elements as a matrix view, if nobody can write them meanwhile.
    pub(crate) fn mat<T: Plain>(self) -> Result<MatRef<'a, T>, Error> {
        self.check_dtype(T::DTYPE)?;
        self.check_unwritten()?;
        // SAFETY: nobody writes the elements (R4).
        unsafe { self.mat_unchecked() }
    }

    /// The elements as a matrix view, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody writes the elements for `'a`.
    pub(crate) unsafe fn mat_unchecked<T: Plain>(self) -> Result<MatRef<'a, T>, Error> {
        let data = self.typed_data::<T>()?;
        let ([rows, columns], [row, column]) = layout(&self)?;
        // SAFETY: every element lies inside the span (R1) and is alive for `'a` (R2); that nobody
        // writes is the caller's duty.
        Ok(unsafe { MatRef::from_raw_parts(data, rows, columns, row, column) })
    }

    /// The elements as a column view, if nobody can write them meanwhile.
    pub(crate) fn column<T: Plain>(self) -> Result<ColRef<'a, T>, Error> {
        self.check_dtype(T::DTYPE)?;
        self.check_unwritten()?;
        let data = self.typed_data::<T>()?;
        let ([rows], [row]) = layout(&self)?;
        // SAFETY: as in `mat_unchecked`; nobody writes the elements (R4).
        Ok(unsafe { ColRef::from_raw_parts(data, rows, row) })
    }

    /// The elements as a mutable matrix view.
    ///
    /// # Safety
    ///
    /// `self` was borrowed mutably for `'a` from its owner.
    pub(crate) unsafe fn mat_mut<T: Plain>(self) -> Result<MatMut<'a, T>, Error> {
        self.check_dtype(T::DTYPE)?;
        self.check_exclusive()?;
        // SAFETY: nobody else can reach the elements (R4, and the caller's duty).
        unsafe { self.mat_mut_unchecked() }
    }

    /// The elements as a mutable matrix view, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the elements for `'a`.
    pub(crate) unsafe fn mat_mut_unchecked<T: Plain>(self) -> Result<MatMut<'a, T>, Error> {
        let data = self.distinct_data()?;
        let ([rows, columns], [row, column]) = layout(&self)?;
        // SAFETY: as in `mat_unchecked`; no two indices reach the same element (checked above),
        // and nobody else has access (the caller's duty).
        Ok(unsafe { MatMut::from_raw_parts_mut(data, rows, columns, row, column) })
    }

    /// The elements as a mutable column view.
    ///
    /// # Safety
    ///
    /// `self` was borrowed mutably for `'a` from its owner.
    pub(crate) unsafe fn column_mut<T: Plain>(self) -> Result<ColMut<'a, T>, Error> {
        self.check_dtype(T::DTYPE)?;
        self.check_exclusive()?;
        let data = self.distinct_data()?;
        let ([rows], [row]) = layout(&self)?;
        // SAFETY: as in `mat_mut_unchecked`; nobody else can reach the elements (R4, and the
        // caller's duty).
        Ok(unsafe { ColMut::from_raw_parts_mut(data, rows, row) })
    }

    /// The first element's address, if no two indices reach the same element.
    fn distinct_data<T: Plain>(&self) -> Result<*mut T, Error> {
        self.check_lent_mutably()?;
        self.typed_data()
    }
}
