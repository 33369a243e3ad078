//! Freshly allocated memory from a framework's allocator: zeroed, and of class `Exclusive`.

use crate::{Access, Error, Tensor};

impl Tensor {
    /// Takes over memory that was allocated just now for this tensor. Host memory is zeroed, memory
    /// elsewhere is left as it is, and the class becomes
    /// [`Exclusive`](crate::Access::Exclusive).
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the elements before this tensor is dropped or given away. They
    /// may be written, and need not be initialised.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](Error::ReadOnly) or [`NotContiguous`](Error::NotContiguous). The tensor is
    /// released then.
    pub unsafe fn into_exclusive_zeroed(mut self) -> Result<Self, Error> {
        let parts = self.parts();
        parts.check_writable()?;
        parts.check_contiguous()?;
        if parts.device().is_host_accessible() && parts.len() != 0 {
            // SAFETY: contiguous, so that the elements are the `nbytes` from `data` on (R1), which
            // are writable and nobody else's (the caller's duty).
            unsafe { parts.data().write_bytes(0, parts.nbytes()) };
        }
        // SAFETY: the caller's duty, after which the class is true (R4).
        unsafe { self.0.set_access(Access::Exclusive) };
        Ok(self)
    }
}
