//! `ndarray` 0.15, both ways. Feature `ndarray-0_15`. The conversions are those of
#![cfg_attr(feature = "ndarray-0_16", doc = "[`ndarray_0_16`](super::ndarray_0_16).")]
#![cfg_attr(not(feature = "ndarray-0_16"), doc = "`ndarray_0_16`.")]
//!
//! ```
//! use dlbridge::Tensor;
//! use ndarray_0_15::{Array2, ArrayView2, array};
//!
//! let tensor = Tensor::from(array![[1.0_f32, 2.0], [3.0, 4.0]]);
//! assert_eq!(tensor.view_as::<ArrayView2<f32>>()?.sum(), 10.0);
//! assert_eq!(tensor.copy_as::<Array2<f32>>()?, array![[1.0, 2.0], [3.0, 4.0]]);
//! # Ok::<(), dlbridge::Error>(())
//! ```

use ::ndarray_0_15 as ndarray;

#[allow(clippy::duplicate_mod, reason = "one text for every version of the crate")]
#[path = "../ndarray/mod.rs"]
mod conversions;
