//! Share tensor memory without copies between Rust crates and, over DLPack, with Python
//! frameworks, Julia and C.
//!
//! A [`Tensor`] owns memory, wherever it came from. It is made from an array or a vector without a
//! copy, seen again as one without a copy, and given away and taken over as a raw descriptor in
//! either version of DLPack's ABI. `dlbridge-pyo3` takes it to and from Python.
//!
//! | I have | I want | call |
//! | --- | --- | --- |
//! | an array, a vector, a boxed slice | a tensor over its memory | [`Tensor::from`] |
//! | a value that holds a buffer | a chosen shape over it | [`Tensor::builder`] |
//! | a tensor from anywhere | its values | [`Tensor::view`] |
//! | a tensor that nobody else writes | a slice, an array | [`Tensor::as_slice`], `Tensor::as_array` |
//! | the same, for good | a slice that owns it | [`Tensor::into_slice`] |
//! | a tensor of a `Vec` | the `Vec` again | [`Tensor::into_owner`] |
//! | a borrowed array | what a C function takes | [`TensorRef`], [`TensorMut`] |
//! | a raw managed tensor | a safe one | [`Tensor::from_raw`] |
//! | a tensor | a raw managed tensor | [`Tensor::into_raw`] |
//!
//! ```
//! use dlbridge::{Access, Tensor};
//!
//! let tensor = Tensor::from(vec![1_i64, 2, 3]);
//! assert_eq!(tensor.access(), Access::Exclusive);
//! assert_eq!(tensor.as_slice::<i64>()?, [1, 2, 3]);
//!
//! // What went through another language's hands is read by value.
//! let shared = tensor.into_shared();
//! assert!(shared.as_slice::<i64>().is_err());
//! assert_eq!(shared.view::<i64>()?.iter().sum::<i64>(), 6);
//! # Ok::<(), dlbridge::Error>(())
//! ```
//!
//! Who may read and write what, and why, is decided by the [`Access`] class; the file `SAFETY.md`
//! of the repository states the whole stance, and what a foreign producer is trusted for.
//!
//! Features add other crates' types, each named with the version that it adapts:
//! `arrow-60`, `burn-0_22`, `burn-flex-0_22`, `bytes-1`, `candle-core-0_11`, `cudarc-0_19`,
//! `faer-0_24`, `image-0_25`, `nalgebra-0_35`, `ndarray-0_17`, `safetensors-0_8`; elements of
//! `float4-0_2`, `float8-0_7`, `half-2`, `microfloat-0_1`, `num-complex-0_4`. `sealed` shares tensors
//! with other processes. `testing` adds what adapters are tested with.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod accessors;
mod adapters;
mod device;
mod dims;
mod dtype;
mod error;
mod export;
mod flags;
pub mod layout;
mod raw;
mod runs;
#[cfg(feature = "sealed")]
pub mod sealed;
mod small;
mod tensor;
mod tensor_ref;
#[cfg(feature = "testing")]
pub mod testing;
mod view;

pub use access::Access;
#[cfg(feature = "cudarc-0_19")]
pub use adapters::cudarc_0_19;
#[cfg(feature = "safetensors-0_8")]
pub use adapters::safetensors_0_8;
pub use device::{Device, DeviceKind};
pub use dlbridge_sys as sys;
pub use dtype::{DType, TypeCode};
pub use error::Error;
pub use export::Builder;
pub use flags::Flags;
pub use raw::{ArcTensor, Element, Iter, LentTensor, Plain, ReadCell, TensorSlice, TensorSliceMut};
#[doc(hidden)]
pub use raw::{Binding, Keep};
pub use tensor::{Producer, Tensor};
pub use tensor_ref::{TensorMut, TensorRef};
pub use view::{View, ViewMut};

/// The most axes that a tensor may have, as in NumPy.
pub const MAX_RANK: usize = 64;
