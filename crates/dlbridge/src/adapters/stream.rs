//! The stream of a tensor's memory, whichever adapter knows one.

use std::ffi::c_void;

use crate::Tensor;

impl Tensor {
    /// The handle of the stream on which work on this tensor's device memory is ordered, if its
    /// owner tells one; null means the default stream. It exists as long as the tensor.
    ///
    /// Owners that do are the CUDA slices of `cudarc`, wherever that crate's feature is on. Of
    /// other memory nothing is known here: whoever handed it over has ordered it.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// assert_eq!(Tensor::from(vec![1.0_f32]).stream_handle(), None);
    /// ```
    #[inline]
    #[must_use]
    pub fn stream_handle(&self) -> Option<*mut c_void> {
        super::stream_handle(self)
    }
}
