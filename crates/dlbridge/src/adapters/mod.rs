//! Conversions from and to other crates' types: one file for each crate and version, and its
//! unsafe half in the file beside it, as `faer_0_24_memory.rs`. A crate
//! whose types are elements, and nothing else, has its page here and its lines in `memory/element.rs`.
//!
//! An adapter uses no other adapter, except one that is named after two crates. Adapters of crates add
//! no methods to the tensor types, because two versions of a crate can be switched on together. Only the
//! standard library's (`std_owners`) has some.

/// Implements one fallible conversion.
macro_rules! try_from {
    ([$($generics:tt)*] $source:ty => $target:ty, $from:ident => $body:expr) => {
        impl<$($generics)*> TryFrom<$source> for $target {
            type Error = $crate::Error;

            #[inline]
            fn try_from($from: $source) -> Result<Self, $crate::Error> {
                $body
            }
        }
    };
}

/// Implements the conversions to a borrowed view, from every borrow of a tensor.
macro_rules! views {
    ($generics:tt $view:ty) => {
        views!($generics $view, source => $crate::adapters::memory::view(source));
    };
    ($generics:tt $view:ty, $from:ident => $body:expr) => {
        try_from!($generics &'a $crate::Tensor => $view, $from => $body);
        try_from!($generics &'a $crate::TensorRef<'_> => $view, $from => $body);
        try_from!($generics &'a $crate::TensorMut<'_> => $view, $from => $body);
        try_from!($generics $crate::TensorRef<'a> => $view, $from => $body);
    };
}

/// Implements the conversions to a mutable view, from every mutable borrow of a tensor.
macro_rules! views_mut {
    ($generics:tt $view:ty) => {
        views_mut!($generics $view, source => $crate::adapters::memory::view_mut(source));
    };
    ($generics:tt $view:ty, $from:ident => $body:expr) => {
        try_from!($generics &'a mut $crate::Tensor => $view, $from => $body);
        try_from!($generics &'a mut $crate::TensorMut<'_> => $view, $from => $body);
        try_from!($generics $crate::TensorMut<'a> => $view, $from => $body);
    };
}

/// Implements the conversions that copy, from every tensor and from its [`View`](crate::View).
macro_rules! copies {
    ($generics:tt $elem:ty => $copy:ty, $function:path) => {
        try_from!($generics &$crate::Tensor => $copy, from => $function(&from.view::<$elem>()?));
        try_from!($generics &$crate::TensorRef<'_> => $copy,
            from => $function(&from.view::<$elem>()?));
        try_from!($generics &$crate::TensorMut<'_> => $copy,
            from => $function(&from.view::<$elem>()?));
        try_from!($generics &$crate::View<'_, $elem> => $copy, from => $function(from));
    };
}

// Below the macros, which they use.
#[macro_use]
mod memory;
#[cfg(feature = "arrow-58")]
#[path = "."]
pub mod arrow_58 {
    //! `arrow` 58, both ways. Feature `arrow-58`. The conversions are those of
    #![cfg_attr(feature = "arrow-60", doc = "[`arrow_60`](super::arrow_60).")]
    #![cfg_attr(not(feature = "arrow-60"), doc = "`arrow_60`.")]
    //!
    //! ```
    //! use arrow_array_58::Float64Array;
    //! use dlbridge::Tensor;
    //!
    //! let tensor = Tensor::try_from(Float64Array::from(vec![1.0, 2.0]))?;
    //! assert_eq!(tensor.as_slice::<f64>()?, [1.0, 2.0]);
    //! assert_eq!(tensor.into_as::<Float64Array>()?.value(1), 2.0);
    //! # Ok::<(), dlbridge::Error>(())
    //! ```

    mod arrow {
        pub(super) use ::{
            arrow_array_58 as array, arrow_buffer_58 as buffer, arrow_schema_58 as schema,
        };
    }

    #[allow(clippy::duplicate_mod, reason = "one text for every version of the crate")]
    #[path = "arrow.rs"]
    mod conversions;

    pub use self::conversions::{from_fixed_shape_tensors, into_fixed_shape_tensors};
}
#[cfg(feature = "arrow-59")]
#[path = "."]
pub mod arrow_59 {
    //! `arrow` 59, both ways. Feature `arrow-59`. The conversions are those of
    #![cfg_attr(feature = "arrow-60", doc = "[`arrow_60`](super::arrow_60).")]
    #![cfg_attr(not(feature = "arrow-60"), doc = "`arrow_60`.")]
    //!
    //! ```
    //! use arrow_array_59::Float64Array;
    //! use dlbridge::Tensor;
    //!
    //! let tensor = Tensor::try_from(Float64Array::from(vec![1.0, 2.0]))?;
    //! assert_eq!(tensor.as_slice::<f64>()?, [1.0, 2.0]);
    //! assert_eq!(tensor.into_as::<Float64Array>()?.value(1), 2.0);
    //! # Ok::<(), dlbridge::Error>(())
    //! ```

    mod arrow {
        pub(super) use ::{
            arrow_array_59 as array, arrow_buffer_59 as buffer, arrow_schema_59 as schema,
        };
    }

    #[allow(clippy::duplicate_mod, reason = "one text for every version of the crate")]
    #[path = "arrow.rs"]
    mod conversions;

    pub use self::conversions::{from_fixed_shape_tensors, into_fixed_shape_tensors};
}
#[cfg(feature = "arrow-60")]
#[path = "."]
pub mod arrow_60 {
    //! `arrow` 60, both ways. Feature `arrow-60`.
    //!
    //! | from | to |
    //! | --- | --- |
    //! | `Buffer`, `ScalarBuffer` | [`Tensor`](crate::Tensor), read-only, by `From` |
    //! | `PrimitiveArray`, `FixedSizeListArray`, `ArrayRef` | [`Tensor`](crate::Tensor), read-only, by `TryFrom` |
    //! | `&PrimitiveArray` | [`TensorRef`](crate::TensorRef), by `TryFrom` |
    //! | a column of the extension type `arrow.fixed_shape_tensor` | [`Tensor`](crate::Tensor), by [`from_fixed_shape_tensors`] |
    //! | a tensor that no other code writes | `Buffer`, `ScalarBuffer`, `PrimitiveArray`, `ArrayRef`, by [`into_as`](crate::Tensor::into_as) |
    //! | the same | a column of tensors, by [`into_fixed_shape_tensors`] |
    //!
    //! Nothing is copied. Arrays with nulls or with bit-packed values are rejected.
    //!
    //! ```
    //! use arrow_array::{Array, Float64Array};
    //! use dlbridge::Tensor;
    //!
    //! let tensor = Tensor::try_from(Float64Array::from(vec![1.0, 2.0]))?;
    //! assert_eq!(tensor.as_slice::<f64>()?, [1.0, 2.0]);
    //! assert_eq!(tensor.into_as::<Float64Array>()?.value(1), 2.0);
    //!
    //! let error = Tensor::try_from(Float64Array::from(vec![Some(1.0), None])).unwrap_err();
    //! assert_eq!(error.to_string(), "values: expected an array without nulls, found 1 null");
    //! # Ok::<(), dlbridge::Error>(())
    //! ```
    //!
    //! A buffer becomes a tensor of bytes; the builder gives it another type and shape:
    //!
    //! ```
    //! use arrow_buffer::Buffer;
    //! use dlbridge::{DType, Tensor};
    //!
    //! let buffer = Buffer::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0]);
    //! let start = buffer.as_ptr();
    //! let matrix = Tensor::builder(buffer).dtype(DType::F32).shape([2, 2]).build_read_only::<u8>()?;
    //! assert_eq!(matrix.as_slice::<f32>()?.as_ptr().cast(), start);
    //!
    //! let others = Tensor::from(Tensor::from(vec![1_u16, 2]).into_shared());
    //! assert!(Buffer::try_from(others).is_err(), "Arrow relies on memory that no code writes");
    //! # Ok::<(), dlbridge::Error>(())
    //! ```
    //!
    //! A list of fixed size becomes an axis. In a column of tensors, the field says which:
    //!
    //! ```
    //! use std::collections::HashMap;
    //! use std::sync::Arc;
    //!
    //! use arrow_array::{Array, FixedSizeListArray, Int32Array};
    //! use arrow_schema::{DataType, Field};
    //! use dlbridge::{Tensor, arrow_60};
    //!
    //! let item = Arc::new(Field::new("item", DataType::Int32, false));
    //! let values = Arc::new(Int32Array::from_iter_values(0..12));
    //! let column = FixedSizeListArray::new(item, 6, values, None);
    //! assert_eq!(Tensor::try_from(column.clone())?.shape(), [2, 6]);
    //!
    //! let extension = [
    //!     ("ARROW:extension:name", "arrow.fixed_shape_tensor"),
    //!     ("ARROW:extension:metadata", r#"{"shape": [2, 3], "permutation": [1, 0]}"#),
    //! ];
    //! let extension = extension.map(|(key, word)| (key.to_owned(), word.to_owned()));
    //! let field = Field::new("x", column.data_type().clone(), false);
    //! let field = field.with_metadata(HashMap::from(extension));
    //! let tensor = arrow_60::from_fixed_shape_tensors(&field, column)?;
    //! assert_eq!((tensor.shape(), tensor.strides()), (&[2, 3, 2][..], &[6, 1, 3][..]));
    //! # Ok::<(), dlbridge::Error>(())
    //! ```

    mod arrow {
        pub(super) use ::{arrow_array as array, arrow_buffer as buffer, arrow_schema as schema};
    }

    #[allow(clippy::duplicate_mod, reason = "one text for every version of the crate")]
    #[path = "arrow.rs"]
    mod conversions;

    pub use self::conversions::{from_fixed_shape_tensors, into_fixed_shape_tensors};
}
#[cfg(feature = "burn-0_22")]
pub mod burn_0_22;
#[cfg(feature = "burn-0_22")]
mod burn_0_22_memory;
#[cfg(feature = "burn-flex-0_22")]
pub mod burn_flex_0_22 {
    //! `burn-flex` 0.22, both ways: the tensors of Burn's backend for the CPU. Feature `burn-flex-0_22`.
    //!
    //! A `FlexTensor` becomes a [`Tensor`](crate::Tensor) with its strides, by `TryFrom`. A contiguous tensor that no
    //! other code writes becomes a `FlexTensor`, by [`into_as`](crate::Tensor::into_as). Nothing is copied.
}
#[cfg(feature = "bytes-1")]
pub mod bytes_1;
#[cfg(feature = "candle-core-0_11")]
pub mod candle_core_0_11;
#[cfg(feature = "candle-core-0_11-cuda")]
pub mod candle_core_0_11_cuda {
    //! `candle-core` 0.11 on CUDA devices: tensors out. Feature `candle-core-0_11-cuda`.
    //!
    //! Candle's own feature `cuda`, which needs NVIDIA's compiler to build, is not needed here: the
    //! program that has it says where the slice of a storage is, see [`from_candle`].

    pub use super::candle_core_0_11::cuda::from_candle;
}
#[cfg(feature = "candle-core-0_11")]
mod candle_core_0_11_memory;
#[cfg(feature = "cudarc-0_19")]
pub mod cudarc_0_19;
#[cfg(feature = "cudarc-0_19")]
mod cudarc_0_19_free_memory;
#[cfg(feature = "cudarc-0_19")]
mod cudarc_0_19_memory;
#[cfg(feature = "faer-0_24")]
pub mod faer_0_24;
#[cfg(feature = "faer-0_24")]
mod faer_0_24_memory;
#[cfg(feature = "float4-0_2")]
pub mod float4_0_2 {
    //! `float4` 0.2: pairs of 4-bit floats, and the power-of-two scales beside them, as elements. Feature
    //! `float4-0_2`. Its single `F4E2M1` takes a byte, and DLPack packs two into one, so it is no element.
    //!
    //! ```
    //! use dlbridge::{DType, Tensor};
    //! use float4::F4E2M1x2;
    //!
    //! let tensor = Tensor::from(vec![F4E2M1x2::from_bits(0x21)]);
    //! assert_eq!(tensor.dtype(), DType::FLOAT4_E2M1FN.with_lanes(2));
    //! # Ok::<(), dlbridge::Error>(())
    //! ```
}
#[cfg(feature = "float8-0_7")]
pub mod float8_0_7 {
    //! `float8` 0.7: its two 8-bit floats as elements. Feature `float8-0_7`.
    //!
    //! ```
    //! use dlbridge::{DType, Tensor};
    //! use float8::F8E5M2;
    //!
    //! let tensor = Tensor::from(vec![F8E5M2::from_f32(1.5)]);
    //! assert_eq!(tensor.dtype(), DType::FLOAT8_E5M2);
    //! assert_eq!(tensor.as_slice::<F8E5M2>()?[0].to_f32(), 1.5);
    //! # Ok::<(), dlbridge::Error>(())
    //! ```
}
#[cfg(feature = "half-2")]
pub mod half_2 {
    //! `half` 2: `f16` and `bf16` as elements. Feature `half-2`.
    //!
    //! ```
    //! use dlbridge::Tensor;
    //! use half::bf16;
    //!
    //! let tensor = Tensor::from(vec![bf16::from_f32(1.5)]);
    //! assert_eq!(tensor.as_slice::<bf16>()?[0].to_f32(), 1.5);
    //! # Ok::<(), dlbridge::Error>(())
    //! ```
}
#[cfg(feature = "image-0_25")]
pub mod image_0_25;
#[cfg(feature = "microfloat-0_1")]
pub mod microfloat_0_1 {
    //! `microfloat` 0.1: its 8-bit floats as elements, one for each kind that DLPack names. Feature
    //! `microfloat-0_1`. Its 4-bit and 6-bit types take a byte each, and DLPack packs them, so they are no
    //! elements.
    //!
    //! ```
    //! use dlbridge::{DType, Tensor};
    //! use microfloat::f8e4m3;
    //!
    //! let tensor = Tensor::from(vec![f8e4m3::from_bits(0x3c)]);
    //! assert_eq!(tensor.dtype(), DType::FLOAT8_E4M3);
    //! # Ok::<(), dlbridge::Error>(())
    //! ```
}
#[cfg(feature = "nalgebra-0_35")]
pub mod nalgebra_0_35;
#[cfg(feature = "nalgebra-0_35")]
mod nalgebra_0_35_memory;
#[cfg(feature = "ndarray-0_15")]
#[path = "."]
pub mod ndarray_0_15 {
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
    #[path = "ndarray.rs"]
    mod conversions;
}
#[cfg(feature = "ndarray-0_16")]
#[path = "."]
pub mod ndarray_0_16 {
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
    #[path = "ndarray.rs"]
    mod conversions;
}
#[cfg(feature = "ndarray-0_17")]
pub mod ndarray_0_17;
#[cfg(feature = "num-complex-0_4")]
pub mod num_complex_0_4 {
    //! `num-complex` 0.4: complex numbers as elements. Feature `num-complex-0_4`.
    //!
    //! ```
    //! use dlbridge::Tensor;
    //! use num_complex::Complex;
    //!
    //! let tensor = Tensor::from(vec![Complex::new(3.0_f32, 4.0)]);
    //! assert_eq!(tensor.as_slice::<Complex<f32>>()?[0].re, 3.0);
    //! # Ok::<(), dlbridge::Error>(())
    //! ```
}
mod std_owners;
mod std_owners_memory;

use std::ffi::c_void;

use crate::{Error, Tensor};

/// The tensor of an array whose layout is nearly always valid. A `Result` would burden every caller with
/// an error that hardly occurs.
///
/// # Panics
///
/// If the layout was rejected.
#[track_caller]
#[inline]
pub(crate) fn describable<T>(made: Result<T, Error>) -> T {
    #[cold]
    #[track_caller]
    fn refused(error: &Error) -> ! {
        panic!("expected an array that a tensor can describe: {error}")
    }
    match made {
        Ok(made) => made,
        Err(error) => refused(&error),
    }
}

impl Tensor {
    /// The handle of the stream that orders work on this tensor's device memory, if its owner has one;
    /// null means the default stream. The stream exists as long as the tensor.
    ///
    /// It is for consumers in other languages: from this call on, the memory is freed behind all work that
    /// the device has at that time, because a consumer may queue work on any stream.
    ///
    /// CUDA slices of `cudarc` have a stream, if the feature of that crate is on. Other memory has none:
    /// the code that imported it has ordered the work.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// assert_eq!(Tensor::from(vec![1.0_f32]).stream_handle(), None);
    /// ```
    #[inline]
    #[must_use]
    pub fn stream_handle(&self) -> Option<*mut c_void> {
        #[cfg(feature = "cudarc-0_19")]
        if let Some(stream) = cudarc_0_19::stream(self) {
            cudarc_0_19_memory::leave(self);
            return Some(stream.cu_stream().cast());
        }
        None
    }
}
