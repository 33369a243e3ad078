//! Tensors that were imported by the legacy ABI, which has no read-only flag.
//! Invariant: such memory is read-only until the caller says otherwise; all handles that share it agree.

use crate::Tensor;

impl Tensor {
    /// Whether the memory is read-only only because it was imported by the legacy ABI, which has no
    /// read-only flag. Tensors that share the memory agree. Such a tensor can still be exported by that
    /// ABI ([`into_raw_legacy`](Self::into_raw_legacy)). To write to it, have the producer export DLPack
    /// 1.x, copy ([`to_contiguous`](Self::to_contiguous)), or, if you know the producer, call
    /// [`assume_writable`](Self::assume_writable).
    #[must_use]
    #[inline]
    pub fn is_legacy_read_only(&self) -> bool {
        self.0.is_legacy_read_only()
    }

    /// Makes memory writable that is read-only only because of the
    /// [legacy ABI](Self::is_legacy_read_only). Any other tensor is left unchanged.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let raw = Tensor::from(vec![1.0_f32]).into_raw_legacy()?;
    /// // SAFETY: exported just now, to no other consumer.
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
    /// The producer permits writing (`SAFETY.md`, T8), as MLX and older releases of PyTorch do. JAX and
    /// TensorFlow do not: they export immutable arrays by that ABI.
    #[must_use]
    pub unsafe fn assume_writable(mut self) -> Self {
        // SAFETY: the caller's duty (T8).
        unsafe { self.0.assume_writable() };
        self
    }
}
