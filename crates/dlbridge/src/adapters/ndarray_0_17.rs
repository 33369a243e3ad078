//! `ndarray` 0.17, both ways. Feature `ndarray-0_17`.
//!
//! | from | to | copies |
//! | --- | --- | --- |
//! | `Array`; `ArcArray` and `Arc<Array>`, read-only | [`Tensor`](crate::Tensor), by `From` | no |
//! | `&array`, `&mut array`, and views of them | [`TensorRef`](crate::TensorRef), [`TensorMut`](crate::TensorMut), by `From` | no |
//! | a tensor that no other code writes | `ArrayView` | no |
//! | a tensor that no other code has | `ArrayViewMut`, where no elements overlap | no |
//! | any tensor in host memory | `ArrayView` of [`ReadCell`](crate::ReadCell) | no |
//! | any tensor in host memory, or its [`View`](crate::View) | `Array`, row-major | yes |
//!
//! Shape and strides stay as they are, negative strides included.
//!
//! ```
//! use dlbridge::Tensor;
//! use ndarray::{Array2, ArrayView2, ArrayViewMut2, array};
//!
//! let mut tensor = Tensor::from(array![[1.0_f32, 2.0], [3.0, 4.0]]);
//! assert_eq!(tensor.view_as::<ArrayView2<f32>>()?.sum(), 10.0);
//! tensor.view_mut_as::<ArrayViewMut2<f32>>()?.fill(0.5);
//! assert_eq!(tensor.copy_as::<Array2<f32>>()?, array![[0.5, 0.5], [0.5, 0.5]]);
//! # Ok::<(), dlbridge::Error>(())
//! ```
//!
//! Memory that other code may write is seen through cells:
//!
//! ```
//! use dlbridge::{ReadCell, Tensor};
//! use ndarray::{ArrayView2, array};
//!
//! let tensor = Tensor::from(array![[1, 2], [3, 4]]).into_shared();
//! let cells = tensor.view_as::<ArrayView2<ReadCell<i32>>>()?;
//! assert_eq!(cells[[1, 0]].get(), 3);
//! # Ok::<(), dlbridge::Error>(())
//! ```
//!
//! `&ArrayRef` and `&mut ArrayRef`, which this version adds, are borrowed as arrays are.

#[path = "ndarray_0_17_memory.rs"]
mod memory;

use ::ndarray::{self, ArrayRef, Dimension};

use super::memory::{borrow, borrow_mut};
use crate::{Element, TensorMut, TensorRef};

#[allow(clippy::duplicate_mod, reason = "one text for every version of the crate")]
#[path = "ndarray.rs"]
mod conversions;

/// Borrows an array or a view of one, read-only, with its strides.
///
/// # Panics
///
/// If the array has more than [`MAX_NDIM`](crate::MAX_NDIM) axes, or a broadcast view has more
/// bytes than fit `isize`.
impl<'a, T: Element, D: Dimension> From<&'a ArrayRef<T, D>> for TensorRef<'a> {
    fn from(array: &'a ArrayRef<T, D>) -> Self {
        borrow(array)
    }
}

/// Borrows an array or a mutable view of one, writable, with its strides.
///
/// # Panics
///
/// If the array has more than [`MAX_NDIM`](crate::MAX_NDIM) axes, or a broadcast view has more
/// bytes than fit `isize`.
impl<'a, T: Element, D: Dimension> From<&'a mut ArrayRef<T, D>> for TensorMut<'a> {
    fn from(array: &'a mut ArrayRef<T, D>) -> Self {
        borrow_mut(array)
    }
}
