//! `ndarray` 0.17: where an array's elements lie, and views over checked parts.
//! Conversions do not belong here (see `adapters/ndarray_0_17.rs`).
//! Invariant: as the module's; ndarray counts strides in elements, as DLPack does.

use ndarray::{
    ArrayBase, ArrayRef, ArrayView, ArrayViewMut, Axis, Data, DataMut, Dimension, ShapeBuilder,
    StrideShape,
};

use super::{Lists, Strided, StridedMut};
use crate::Error;
use crate::raw::element::Element;
use crate::raw::{Parts, Plain, ReadCell};

// SAFETY: `as_ptr` is element `[0, 0, ...]`; shape and strides reach initialised elements alone
// (R10).
unsafe impl<T: Element, D: Dimension> Strided for ArrayRef<T, D> {
    type Elem = T;

    fn axes(&self) -> usize {
        self.ndim()
    }

    fn describe(&self, lists: &mut Lists<'_>) -> Result<(), Error> {
        let mut axes = self.shape().iter().zip(self.strides()).enumerate();
        axes.try_for_each(|(axis, (&extent, &stride))| lists.set(axis, extent, stride))
    }

    fn origin(&self) -> *const T {
        self.as_ptr()
    }
}

// SAFETY: a unique borrow of the elements (R10).
unsafe impl<T: Element, D: Dimension> StridedMut for ArrayRef<T, D> {
    fn origin_mut(&mut self) -> *mut T {
        self.as_mut_ptr()
    }
}

// Owned elements stay in the heap when the array moves, and nobody writes those of a shared array.
lend!([S: Data<Elem: Element>, D: Dimension] ArrayBase<S, D> => ArrayRef<S::Elem, D>);

// SAFETY: `DataMut` makes the elements this array's alone (R10).
unsafe impl<S, D> StridedMut for ArrayBase<S, D>
where
    S: DataMut<Elem: Element>,
    D: Dimension,
{
    fn origin_mut(&mut self) -> *mut Self::Elem {
        self.as_mut_ptr()
    }
}

/// A layout as ndarray's constructors from pointers want it: from the lowest element up.
struct Upwards<D> {
    shape: StrideShape<D>,
    /// From element `[0, 0, ...]` to the lowest one, in elements.
    low: isize,
}

#[inline]
fn upwards<D: Dimension>(parts: &Parts<'_>) -> Result<Upwards<D>, Error> {
    let rank = parts.shape().len();
    if let Some(wanted) = D::NDIM.filter(|&wanted| wanted != rank) {
        return Err(Error::RankMismatch { wanted, found: rank });
    }
    let (mut shape, mut strides) = (D::zeros(rank), D::zeros(rank));
    let mut low = 0;
    let axes = parts.shape().iter().zip(parts.strides());
    let to = shape.slice_mut().iter_mut().zip(strides.slice_mut());
    for ((to_extent, to_stride), (&extent, &stride)) in to.zip(axes) {
        *to_extent = extent as usize;
        // An axis of extent 1 has no step: ndarray need not see its stride, which may be anything.
        if extent > 1 {
            *to_stride = stride.unsigned_abs() as usize;
            // Of an array with elements, the whole span was measured (R1).
            let back = (stride as isize).min(0).wrapping_mul(extent as isize - 1);
            low = isize::wrapping_add(low, back);
        }
    }
    if parts.len() == 0 {
        // Nor does an empty array step anywhere; ndarray wants strides without overlap even so.
        return Ok(Upwards { shape: shape.into(), low: 0 });
    }
    Ok(Upwards { shape: shape.strides(strides), low })
}

/// The axes that run backwards.
fn reversed<'a>(parts: &'a Parts<'_>) -> impl Iterator<Item = Axis> + 'a {
    let axes = parts.strides().iter().zip(parts.shape()).enumerate();
    axes.filter(|&(_, (&stride, &extent))| stride < 0 && extent > 1).map(|(axis, _)| Axis(axis))
}

impl<'a> Parts<'a> {
    /// The elements as an ndarray view, if nobody can write them meanwhile.
    #[inline]
    pub(crate) fn array<T: Plain, D: Dimension>(self) -> Result<ArrayView<'a, T, D>, Error> {
        self.check_dtype(T::DTYPE)?;
        self.check_unwritten()?;
        // SAFETY: nobody writes the elements (R4).
        unsafe { self.array_unchecked() }
    }

    /// The elements as an ndarray view, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody writes the elements for `'a`.
    #[inline]
    pub(crate) unsafe fn array_unchecked<T: Plain, D: Dimension>(
        self,
    ) -> Result<ArrayView<'a, T, D>, Error> {
        // SAFETY: every bit pattern is a value (R5), and the caller vouches for no writes.
        unsafe { self.raw_array(self.typed_data::<T>()?) }
    }

    /// The elements as cells in an ndarray view.
    pub(crate) fn cell_array<T: Plain, D: Dimension>(
        self,
    ) -> Result<ArrayView<'a, ReadCell<T>, D>, Error> {
        // SAFETY: a cell has its element's layout and stands any bytes and any writer (R5).
        unsafe { self.raw_array(self.typed_data::<T>()?.cast()) }
    }

    /// # Safety
    ///
    /// `data` is the first element, and the elements may be lent as `&A` for `'a`.
    #[inline]
    unsafe fn raw_array<A, D: Dimension>(
        self,
        data: *const A,
    ) -> Result<ArrayView<'a, A, D>, Error> {
        let Upwards { shape, low } = upwards(&self)?;
        // SAFETY: from the lowest element, which is inside the span (R1), every stride leads
        // upwards to elements alive for `'a` (R2).
        let mut view = unsafe { ArrayView::from_shape_ptr(shape, data.wrapping_offset(low)) };
        reversed(&self).for_each(|axis| view.invert_axis(axis));
        Ok(view)
    }

    /// The elements as a mutable ndarray view.
    ///
    /// # Safety
    ///
    /// `self` was borrowed mutably for `'a` from its owner.
    pub(crate) unsafe fn array_mut<T: Plain, D: Dimension>(
        self,
    ) -> Result<ArrayViewMut<'a, T, D>, Error> {
        self.check_dtype(T::DTYPE)?;
        self.check_exclusive()?;
        // SAFETY: nobody else can reach the elements (R4, and the caller's duty).
        unsafe { self.array_mut_unchecked() }
    }

    /// The elements as a mutable ndarray view, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the elements for `'a`.
    pub(crate) unsafe fn array_mut_unchecked<T: Plain, D: Dimension>(
        self,
    ) -> Result<ArrayViewMut<'a, T, D>, Error> {
        self.check_lent_mutably()?;
        let data = self.typed_data::<T>()?;
        let Upwards { shape, low } = upwards(&self)?;
        // SAFETY: as in `raw_array`; no two indices reach the same element (checked above), and
        // nobody else has access (the caller's duty).
        let mut view = unsafe { ArrayViewMut::from_shape_ptr(shape, data.wrapping_offset(low)) };
        reversed(&self).for_each(|axis| view.invert_axis(axis));
        Ok(view)
    }
}
