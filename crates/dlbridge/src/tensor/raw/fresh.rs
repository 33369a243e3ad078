//! Freshly allocated memory from a framework's allocator: zeroed, and of class `Exclusive`.

use crate::{Access, Error, Tensor};

impl Tensor {
    /// Makes freshly allocated memory exclusive. Host memory is zeroed, device memory is left unchanged,
    /// and the class becomes
    /// [`Exclusive`](crate::Access::Exclusive).
    ///
    /// # Safety
    ///
    /// No other code reads or writes the elements before this tensor is dropped or exported. They may be
    /// written, and need not be initialised.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](Error::ReadOnly) or [`NotContiguous`](Error::NotContiguous). The tensor is
    /// dropped then.
    pub unsafe fn into_exclusive_zeroed(mut self) -> Result<Self, Error> {
        let checked = self.checked();
        checked.check_writable()?;
        checked.check_contiguous()?;
        if checked.device().is_host_accessible() && checked.len() != 0 {
            // SAFETY: contiguous, so that the elements are the `nbytes` from `data` on (R1), which
            // are writable and exclusive (the caller's duty).
            unsafe { checked.data().write_bytes(0, checked.nbytes()) };
        }
        // SAFETY: the caller's duty, after which the class is true (R4).
        unsafe { self.0.set_access(Access::Exclusive) };
        Ok(self)
    }
}
