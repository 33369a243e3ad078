//! Conversions from and to other crates' types: one folder for each crate and version, the
//! conversions in its `mod.rs` and its unsafe half in the `memory.rs` beside it. A crate
//! whose types are elements, and nothing else, has its page here and its lines in `raw/element.rs`.
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
pub mod arrow_58;
#[cfg(feature = "arrow-59")]
pub mod arrow_59;
#[cfg(feature = "arrow-60")]
pub mod arrow_60;
#[cfg(feature = "burn-0_22")]
pub mod burn_0_22;
#[cfg(feature = "burn-flex-0_22")]
pub mod burn_flex_0_22;
#[cfg(feature = "bytes-1")]
pub mod bytes_1;
#[cfg(feature = "candle-core-0_11")]
pub mod candle_core_0_11;
#[cfg(feature = "candle-core-0_11-cuda")]
pub mod candle_core_0_11_cuda;
#[cfg(feature = "cudarc-0_19")]
pub mod cudarc_0_19;
#[cfg(feature = "faer-0_24")]
pub mod faer_0_24;
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
#[cfg(feature = "ndarray-0_15")]
pub mod ndarray_0_15;
#[cfg(feature = "ndarray-0_16")]
pub mod ndarray_0_16;
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
#[cfg(feature = "safetensors-0_8")]
pub mod safetensors_0_8;
mod std_owners;
mod stream;

use crate::Error;

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
