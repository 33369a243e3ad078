// Where the elements of an array lie, and views over checked elements, for every version of
// `ndarray`.
//
// ndarray counts strides in elements, as DLPack does.
#![allow(unsafe_code)]

use crate::adapters::memory::{Source, Strided, StridedMut, ViewMutOf, ViewOf};
use crate::layout::Lists;
use crate::memory::Checked;
use crate::memory::handle::header::Owns;
use crate::{Element, Error, Plain, ReadCell};

use super::super::ndarray::{
    ArrayBase, ArrayView, ArrayViewMut, Axis, Data, DataMut, Dimension, ShapeBuilder, StrideShape,
};

/// Where the elements of a type lie that has ndarray's methods for it.
macro_rules! strided {
    ([$($generics:tt)*] $array:ty, $elem:ty) => {
        // SAFETY: `as_ptr` is element `[0, 0, ...]`; shape and strides reach initialised elements
        // alone. Owned elements stay in the heap when the array moves (R10).
        unsafe impl<$($generics)*> Strided for $array {
            type Elem = $elem;
            // An array of a version of ndarray has elements alone, whatever its storage.
            const OWNS: Owns = Owns::Elements;

            #[inline]
            fn axes(&self) -> usize {
                self.ndim()
            }

            #[inline]
            fn describe(&self, lists: &mut Lists<'_>) -> Result<(), Error> {
                let mut axes = self.shape().iter().zip(self.strides()).enumerate();
                axes.try_for_each(|(axis, (&extent, &stride))| lists.set(axis, extent, stride))
            }

            #[inline]
            fn origin(&self) -> *const $elem {
                self.as_ptr()
            }
        }
    };
}

#[allow(unused_imports, reason = "not every version has another array type")]
pub(in crate::adapters) use strided;

strided!([S: Data<Elem: Element>, D: Dimension] ArrayBase<S, D>, S::Elem);

// SAFETY: `DataMut` makes the elements this array's alone (R10).
unsafe impl<S, D> StridedMut for ArrayBase<S, D>
where
    S: DataMut<Elem: Element>,
    D: Dimension,
{
    #[inline]
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
fn upwards<D: Dimension>(checked: &Checked<'_>) -> Result<Upwards<D>, Error> {
    let ndim = checked.shape().len();
    if let Some(expected) = D::NDIM.filter(|&expected| expected != ndim) {
        return Err(Error::ndim(expected, ndim));
    }
    let (mut shape, mut strides) = (D::zeros(ndim), D::zeros(ndim));
    let mut low = 0;
    let axes = checked.shape().iter().zip(checked.strides());
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
    if checked.len() == 0 {
        // Nor does an empty array step anywhere; ndarray wants strides without overlap even so.
        return Ok(Upwards { shape: shape.into(), low: 0 });
    }
    Ok(Upwards { shape: shape.strides(strides), low })
}

/// The axes that run backwards.
fn reversed<'a>(checked: &'a Checked<'_>) -> impl Iterator<Item = Axis> + 'a {
    let axes = checked.strides().iter().zip(checked.shape()).enumerate();
    axes.filter(|&(_, (&stride, &extent))| stride < 0 && extent > 1).map(|(axis, _)| Axis(axis))
}

impl<'a, T: Plain, D: Dimension> ViewOf<'a> for ArrayView<'a, T, D> {
    type Elem = T;

    #[inline]
    unsafe fn over(data: *const T, checked: &Checked<'_>) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        unsafe { over(data, checked) }
    }
}

/// A view of elements that may be borrowed as `&A`.
///
/// # Safety
///
/// `data` is the address of the first element of `checked`; for `'a`, the elements are alive and may
/// be borrowed as `&A`.
#[inline]
unsafe fn over<'a, A, D: Dimension>(
    data: *const A,
    checked: &Checked<'_>,
) -> Result<ArrayView<'a, A, D>, Error> {
    let Upwards { shape, low } = upwards(checked)?;
    // SAFETY: from the lowest element, which is inside the span (R1), every stride leads upwards to
    // elements that are alive for `'a` (the caller's duty).
    let mut view = unsafe { ArrayView::from_shape_ptr(shape, data.wrapping_offset(low)) };
    reversed(checked).for_each(|axis| view.invert_axis(axis));
    Ok(view)
}

/// A view of cells, for memory of every class.
pub(super) fn cells<'a, T: Plain, D: Dimension>(
    source: impl Source<'a>,
) -> Result<ArrayView<'a, ReadCell<T>, D>, Error> {
    let checked = source.checked();
    let data = checked.typed_data::<T>()?;
    // SAFETY: alive for `'a` (`Source`'s duty); a cell has its element's layout, and is valid over
    // any bytes and beside any writer (R5).
    unsafe { over(data.cast(), &checked) }
}

impl<'a, T: Plain, D: Dimension> ViewMutOf<'a> for ArrayViewMut<'a, T, D> {
    type Elem = T;

    #[inline]
    unsafe fn over_mut(data: *mut T, checked: &Checked<'_>) -> Result<Self, Error> {
        let Upwards { shape, low } = upwards(checked)?;
        // SAFETY: as in `over`; no two indices reach the same element, and no other code has access
        // (the caller's duty).
        let mut view = unsafe { ArrayViewMut::from_shape_ptr(shape, data.wrapping_offset(low)) };
        reversed(checked).for_each(|axis| view.invert_axis(axis));
        Ok(view)
    }
}
