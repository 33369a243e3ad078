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
//! | a tensor that no other code writes | a slice, an array or matrix view | [`Tensor::as_slice`], [`Tensor::view_as`] |
//! | any tensor in host memory | a copy as an array, a matrix, an image | [`Tensor::copy_as`] |
//! | a tensor that no other code writes | a slice or a buffer that owns it | [`Tensor::into_slice`], [`Tensor::into_as`] |
//! | a tensor of a `Vec` | the `Vec` again | [`Tensor::into_owner`] |
//! | a tensor | several handles to its memory, writable or read-only | [`Tensor::into_shared`], [`Tensor::into_frozen`] |
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
//! `faer-0_24`, `image-0_25`, `nalgebra-0_35`, `ndarray-0_16`, `ndarray-0_17`, `safetensors-0_8`;
//! elements of `float4-0_2`, `float8-0_7`, `half-2`, `microfloat-0_1`, `num-complex-0_4`. `sealed`
//! shares tensors with other processes. `testing` adds what adapters are tested with.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod adapters;
mod device;
mod dtype;
mod error;
mod flags;
pub mod layout;
mod match_dtype;
mod part_error;
#[doc(hidden)]
pub mod protocol;
mod raw;
#[cfg(feature = "sealed")]
pub mod sealed;
mod tensor;
#[cfg(feature = "testing")]
pub mod testing;

pub use access::Access;
#[cfg(feature = "arrow-60")]
pub use adapters::arrow_60;
#[cfg(feature = "burn-0_22")]
pub use adapters::burn_0_22;
#[cfg(feature = "burn-flex-0_22")]
pub use adapters::burn_flex_0_22;
#[cfg(feature = "bytes-1")]
pub use adapters::bytes_1;
#[cfg(feature = "candle-core-0_11")]
pub use adapters::candle_core_0_11;
#[cfg(feature = "candle-core-0_11-cuda")]
pub use adapters::candle_core_0_11_cuda;
#[cfg(feature = "cudarc-0_19")]
pub use adapters::cudarc_0_19;
#[cfg(feature = "faer-0_24")]
pub use adapters::faer_0_24;
#[cfg(feature = "float4-0_2")]
pub use adapters::float4_0_2;
#[cfg(feature = "float8-0_7")]
pub use adapters::float8_0_7;
#[cfg(feature = "half-2")]
pub use adapters::half_2;
#[cfg(feature = "image-0_25")]
pub use adapters::image_0_25;
#[cfg(feature = "microfloat-0_1")]
pub use adapters::microfloat_0_1;
#[cfg(feature = "nalgebra-0_35")]
pub use adapters::nalgebra_0_35;
#[cfg(feature = "ndarray-0_16")]
pub use adapters::ndarray_0_16;
#[cfg(feature = "ndarray-0_17")]
pub use adapters::ndarray_0_17;
#[cfg(feature = "num-complex-0_4")]
pub use adapters::num_complex_0_4;
#[cfg(feature = "safetensors-0_8")]
pub use adapters::safetensors_0_8;
pub use device::{Device, DeviceKind};
pub use dlbridge_sys as sys;
pub use dtype::{DType, TypeCode};
pub use error::Error;
pub use flags::Flags;
pub use part_error::PartError;
pub use raw::descriptor::ManagedTensor;
pub use raw::{Element, Iter, Plain, ReadCell};
#[doc(hidden)]
pub use tensor::ffi;
pub use tensor::{
    AxisIter, Builder, Indexed, Pieces, Producer, Rows, SharedTensor, Tensor, TensorMut, TensorRef,
    TensorSlice, TensorSliceMut, View, ViewMut, ViewPart, Zip,
};

/// The most axes that a tensor may have, as in NumPy.
pub const MAX_RANK: usize = 64;
