// The conversions of every version of `ndarray`: each version's module loads this file, with its
// crate as `super::ndarray`.

#[path = "ndarray_memory.rs"]
pub(super) mod memory;

use std::sync::Arc;

use super::ndarray::{
    ArcArray, Array, ArrayBase, ArrayView, ArrayViewMut, Data, DataMut, Dimension,
};
use crate::adapters::describable;
use crate::adapters::memory::{borrow, borrow_mut, export, export_frozen};
use crate::{Element, Error, Plain, ReadCell, Tensor, TensorMut, TensorRef, View};

/// An array becomes a tensor without a copy, whatever its strides.
///
/// # Panics
///
/// If the array has more than [`MAX_NDIM`](crate::MAX_NDIM) axes.
impl<T: Element, D: Dimension + 'static> From<Array<T, D>> for Tensor {
    fn from(array: Array<T, D>) -> Self {
        Self(describable(export(array)))
    }
}

/// A shared array becomes a read-only tensor without a copy.
///
/// # Panics
///
/// If the array has more than [`MAX_NDIM`](crate::MAX_NDIM) axes.
impl<T: Element, D: Dimension + 'static> From<ArcArray<T, D>> for Tensor {
    fn from(array: ArcArray<T, D>) -> Self {
        Self(describable(export_frozen(array)))
    }
}

/// A shared array becomes a read-only tensor without a copy.
///
/// # Panics
///
/// If the array has more than [`MAX_NDIM`](crate::MAX_NDIM) axes.
impl<T: Element, D: Dimension + 'static> From<Arc<Array<T, D>>> for Tensor {
    fn from(array: Arc<Array<T, D>>) -> Self {
        Self(describable(export_frozen(array)))
    }
}

/// Borrows an array or a view of one, read-only, with its strides.
///
/// # Panics
///
/// If the array has more than [`MAX_NDIM`](crate::MAX_NDIM) axes, or a broadcast view has more
/// bytes than fit `isize`.
impl<'a, S, D> From<&'a ArrayBase<S, D>> for TensorRef<'a>
where
    S: Data<Elem: Element>,
    D: Dimension,
{
    fn from(array: &'a ArrayBase<S, D>) -> Self {
        borrow(array)
    }
}

/// Borrows an array or a mutable view of one, writable, with its strides.
///
/// # Panics
///
/// If the array has more than [`MAX_NDIM`](crate::MAX_NDIM) axes, or a broadcast view has more
/// bytes than fit `isize`.
impl<'a, S, D> From<&'a mut ArrayBase<S, D>> for TensorMut<'a>
where
    S: DataMut<Elem: Element>,
    D: Dimension,
{
    fn from(array: &'a mut ArrayBase<S, D>) -> Self {
        borrow_mut(array)
    }
}

views!(['a, T: Plain, D: Dimension] ArrayView<'a, T, D>);
views!(['a, T: Plain, D: Dimension] ArrayView<'a, ReadCell<T>, D>, source => memory::cells(source));
try_from!(['a, T: Plain, D: Dimension] View<'a, T> => ArrayView<'a, ReadCell<T>, D>,
    view => memory::cells(view));
views_mut!(['a, T: Plain, D: Dimension] ArrayViewMut<'a, T, D>);
copies!([T: Element, D: Dimension] T => Array<T, D>, copied);

/// A copy in row-major order.
fn copied<T: Element, D: Dimension>(view: &View<'_, T>) -> Result<Array<T, D>, Error> {
    let shape = view.shape();
    if let Some(expected) = D::NDIM.filter(|&expected| expected != shape.len()) {
        return Err(Error::ndim(expected, shape.len()));
    }
    let mut dim = D::zeros(shape.len());
    for (to, &from) in dim.slice_mut().iter_mut().zip(shape) {
        *to = from as usize;
    }
    let array = Array::from_shape_vec(dim, view.elements.to_vec()?);
    Ok(array.expect("as many elements as the shape has"))
}
