//! The tests of the crate, in one program. Those that need a process of their own are beside it.

mod common;

mod access;
mod aliasing;
mod arc_tensor;
#[cfg(feature = "arrow-60")]
mod arrow;
#[cfg(feature = "arrow-58")]
mod arrow_58;
#[cfg(feature = "arrow-59")]
mod arrow_59;
#[cfg(feature = "arrow-60")]
mod arrow_60;
#[cfg(feature = "arrow-60")]
mod arrow_60_lists;
mod bool;
mod borrowed;
mod build_raw;
mod builder;
#[cfg(feature = "burn-0_22")]
mod burn_0_22;
#[cfg(feature = "burn-flex-0_22")]
mod burn_flex_0_22;
#[cfg(feature = "bytes-1")]
mod bytes_1;
#[cfg(feature = "candle-core-0_11")]
mod candle_core_0_11;
mod conformance;
mod copies;
mod described;
mod elements;
mod errors;
#[cfg(feature = "faer-0_24")]
mod faer_0_24;
mod fresh;
#[cfg(target_pointer_width = "64")]
mod huge_layouts;
#[cfg(target_pointer_width = "32")]
mod huge_layouts_32;
#[cfg(feature = "image-0_25")]
mod image_0_25;
mod in_place;
mod misaligned;
#[cfg(feature = "nalgebra-0_35")]
mod nalgebra_0_35;
mod names;
#[cfg(feature = "ndarray-0_17")]
mod ndarray;
#[cfg(feature = "ndarray-0_15")]
mod ndarray_0_15;
#[cfg(feature = "ndarray-0_16")]
mod ndarray_0_16;
#[cfg(feature = "ndarray-0_17")]
mod ndarray_0_17;
#[cfg(feature = "ndarray-0_17")]
mod ndarray_0_17_views;
mod odd_but_legal;
mod owned_slice;
mod ownership;
mod packed;
#[cfg(feature = "rayon")]
mod parallel;
mod parts;
mod prop_parts;
mod protocol;
mod rank_0;
mod releases;
mod rights;
mod rows;
#[cfg(all(feature = "safetensors-0_8", target_endian = "little"))]
mod safetensors_0_8;
#[cfg(all(feature = "safetensors-0_8", target_endian = "big"))]
mod safetensors_0_8_big_endian;
#[cfg(all(feature = "float8-0_7", feature = "microfloat-0_1", feature = "float4-0_2"))]
mod small_floats;
mod strides;
mod threads;
mod validation;
mod versions;
mod zero_size;
