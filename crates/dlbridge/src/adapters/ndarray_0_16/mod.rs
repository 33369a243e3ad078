//! `ndarray` 0.16, both ways. Feature `ndarray-0_16`.
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
//! use ndarray_0_16::{Array2, ArrayView2, ArrayViewMut2, array};
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
//! use ndarray_0_16::{ArrayView2, array};
//!
//! let tensor = Tensor::from(array![[1, 2], [3, 4]]).into_shared();
//! let cells = tensor.view_as::<ArrayView2<ReadCell<i32>>>()?;
//! assert_eq!(cells[[1, 0]].get(), 3);
//! # Ok::<(), dlbridge::Error>(())
//! ```

use ::ndarray_0_16 as ndarray;

#[allow(clippy::duplicate_mod, reason = "one text for every version of the crate")]
#[path = "../ndarray/mod.rs"]
mod conversions;
