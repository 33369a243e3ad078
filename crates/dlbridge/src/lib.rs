//! Share tensor memory without copies between Rust crates and, over DLPack, with Python
//! frameworks, Julia and C.
//!
//! A [`Tensor`] owns memory of Rust or of another language. Arrays and vectors of Rust crates become
//! tensors, and tensors become views of these crates' types, without a copy. A tensor is exported and
//! imported as a raw descriptor, in either ABI of DLPack: versioned (1.x) and legacy (before 1.0). The
//! crate `dlbridge-pyo3` exchanges tensors with Python.
//!
//! | I have | I want | call |
//! | --- | --- | --- |
//! | an array, a vector, a boxed slice | a tensor over its memory | [`Tensor::from`] |
//! | a value that holds a buffer | a tensor of a chosen shape over it | [`Tensor::builder`] |
//! | any tensor in host memory | its values | [`Tensor::view`] |
//! | a tensor that no other code writes | a slice, an array or matrix view | [`Tensor::as_slice`], [`Tensor::view_as`] |
//! | any tensor or view | a row, a range, other axes, another shape, without a copy | [`Parts`] |
//! | any tensor in host memory | a copy as an array, a matrix, an image | [`Tensor::copy_as`] |
//! | a tensor that no other code writes | a slice or a buffer that owns its memory | [`Tensor::into_slice`], [`Tensor::into_as`] |
//! | a tensor made from a `Vec` | the `Vec` | [`Tensor::into_owner`] |
//! | a tensor | several handles to its memory, writable or read-only | [`Tensor::into_shared`], [`Tensor::into_frozen`] |
//! | an array behind a lock | a tensor that holds the lock | [`Tensor::from_guard`], [`Tensor::from_guard_mut`] |
//! | a dtype and a shape | the bytes that a tensor of them needs | [`DType::contiguous_nbytes`] |
//! | a borrowed array | a `DLTensor*` for a C function | [`TensorRef`], [`TensorMut`] |
//! | a raw managed tensor | a `Tensor` that owns it | [`Tensor::from_raw`] |
//! | an address in host memory | a view, of a layout that is measured once | [`Layout::new`], [`View::from_raw`] |
//! | two tensors, one of which is written | whether they have a byte in common | [`TensorRef::may_share_memory`] |
//! | a tensor | a raw managed tensor | [`Tensor::into_raw`] |
//!
//! ```
//! use dlbridge::{Access, Tensor};
//!
//! let tensor = Tensor::from(vec![1_i64, 2, 3]);
//! assert_eq!(tensor.access(), Access::Exclusive);
//! assert_eq!(tensor.as_slice::<i64>()?, [1, 2, 3]);
//!
//! // Memory that other code may write is read by value.
//! let shared = tensor.into_shared();
//! assert!(shared.as_slice::<i64>().is_err());
//! assert_eq!(shared.view::<i64>()?.iter().sum::<i64>(), 6);
//! # Ok::<(), dlbridge::Error>(())
//! ```
//!
//! The [`Access`] class of a tensor decides which accesses are safe. The file `SAFETY.md` of the
//! repository gives the rules and their reasons, and lists what a foreign producer is trusted for.
//!
//! Features add conversions for other crates, each named with the version that it supports:
//! `arrow-58`, `arrow-59`, `arrow-60`, `burn-0_22`, `burn-flex-0_22`, `bytes-1`, `candle-core-0_11`,
//! `cudarc-0_19`, `faer-0_24`, `image-0_25`, `nalgebra-0_35`, `ndarray-0_15`, `ndarray-0_16`, `ndarray-0_17`,
//! and element types: `float4-0_2`, `float8-0_7`, `half-2`, `microfloat-0_1`, `num-complex-0_4`.
//! `rayon` computes on many threads. The crate `dlbridge-sealed` shares tensors with other processes, and reads and writes
//! safetensors files; `dlbridge-testing` has the suites that test conversions.
#![cfg_attr(docsrs, feature(doc_cfg))]

// First, so that the page of `Tensor` opens with its own methods.
mod tensor;

mod access;
mod adapters;
mod device;
mod dtype;
mod error;
#[doc(hidden)]
pub mod layout;
mod memory;
mod names;
#[doc(hidden)]
pub mod protocol;

pub use access::{Access, Flags};
#[allow(unreachable_pub, unused_imports, reason = "without a feature there is no adapter")]
pub use adapters::*;
pub use device::{Device, DeviceKind};
pub use dlbridge_sys as sys;
pub use dtype::{DType, TypeCode};
pub use error::{DescriptorError, Error, ErrorKind, ShapeField};
pub use layout::{Layout, Shape};
pub use memory::handle::ManagedTensor;
#[cfg(feature = "rayon")]
pub use memory::thread_pool;
pub use memory::{Element, Iter, Plain, ReadCell};
#[cfg(feature = "rayon")]
pub use tensor::ParIter;
pub use tensor::{
    ArcTensor, AxisIter, Builder, ChunksMut, Indexed, Parts, Pieces, Rows, Tensor, TensorMut,
    TensorRef, TensorSlice, TensorSliceMut, View, ViewMut, ViewPart, Zip,
};
#[doc(hidden)]
pub use tensor::{ByReference, ffi};

/// The most axes that a tensor may have, as in NumPy.
pub const MAX_NDIM: usize = 64;
