//! Tensors that were imported by the legacy ABI, which has no read-only flag.
//! Invariant: such memory is read-only until the caller says otherwise; all handles that share it agree.

use crate::Tensor;

impl Tensor {
    /// Whether the memory is read-only for one reason alone: it came by DLPack before 1.0, which cannot
    /// say that it may be written. Tensors that share it keep this. Such a tensor can still be exported
    /// by that ABI ([`into_raw_legacy`](Self::into_raw_legacy)); to write to it, ask the producer for a
    /// versioned descriptor, copy ([`to_contiguous`](Self::to_contiguous)), or, knowing the
    /// producer, call [`assume_writable`](Self::assume_writable).
    #[must_use]
    #[inline]
    pub fn is_legacy_read_only(&self) -> bool {
        self.0.is_legacy_read_only()
    }

    /// Says that memory may be written which is read-only only because it
    /// [came by DLPack before 1.0](Self::is_legacy_read_only). Any other tensor stays as it is.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let raw = Tensor::from(vec![1.0_f32]).into_raw_legacy()?;
    /// // SAFETY: given away just now, and to nobody else.
    /// let tensor = unsafe { Tensor::from_raw(raw) }?;
    /// assert!(tensor.is_read_only() && tensor.is_legacy_read_only());
    /// // SAFETY: exported from a vector, which may be written.
    /// let tensor = unsafe { tensor.assume_writable() };
    /// assert!(!tensor.is_read_only());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The producer permits writing (`SAFETY.md`, T8), as MLX and older releases of PyTorch do. Producers whose
    /// arrays are immutable (JAX, TensorFlow) export them by that ABI all the same.
    #[must_use]
    pub unsafe fn assume_writable(mut self) -> Self {
        // SAFETY: the caller's duty (T8).
        unsafe { self.0.assume_writable() };
        self
    }
}
