//! Conversions from and to other crates' types: one file for each crate and version.
//! Where those types' memory lies is told in `raw/arrays`; nothing here is unsafe.
//! Invariant: no adapter knows of another, but for the one that is named after two.

#[cfg(feature = "arrow-60")]
mod arrow_60;
#[cfg(feature = "burn-0_22")]
mod burn_0_22;
#[cfg(feature = "burn-flex-0_22")]
mod burn_flex_0_22;
#[cfg(feature = "bytes-1")]
mod bytes_1;
#[cfg(feature = "candle-core-0_11")]
mod candle_core_0_11;
#[cfg(feature = "candle-core-0_11-cuda")]
mod candle_core_0_11_cuda;
#[cfg(feature = "cudarc-0_19")]
pub mod cudarc_0_19;
#[cfg(feature = "faer-0_24")]
mod faer_0_24;
#[cfg(feature = "image-0_25")]
mod image_0_25;
#[cfg(feature = "nalgebra-0_35")]
mod nalgebra_0_35;
#[cfg(feature = "ndarray-0_17")]
mod ndarray_0_17;
#[cfg(feature = "safetensors-0_8")]
pub mod safetensors_0_8;
mod std_owners;
mod stream;

use std::ffi::c_void;

use crate::Tensor;
#[cfg(any(feature = "faer-0_24", feature = "nalgebra-0_35", feature = "ndarray-0_17"))]
pub(crate) use crate::tensor::tensor_ref::describable;

/// The handle of the stream that the owner of a tensor's memory has its work on.
#[inline]
pub(crate) fn stream_handle(tensor: &Tensor) -> Option<*mut c_void> {
    #[cfg(feature = "cudarc-0_19")]
    if let Some(stream) = tensor.cuda_stream() {
        return Some(stream.cu_stream().cast());
    }
    let _ = tensor;
    None
}
