//! The stream of a tensor's memory, if an adapter knows it.

use std::ffi::c_void;

use crate::Tensor;

impl Tensor {
    /// The handle of the stream that orders work on this tensor's device memory, if its owner has one;
    /// null means the default stream. The stream exists as long as the tensor.
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
        if let Some(stream) = super::cudarc_0_19::stream(self) {
            return Some(stream.cu_stream().cast());
        }
        None
    }
}
