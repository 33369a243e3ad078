//! Zeroed host memory, aligned as the most demanding framework wants it.
//! Shapes and types do not belong here: it is bytes.
//! Invariant: `data` owns `size` initialised bytes, or dangles if `size` is 0.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::{self, NonNull};
use std::slice;

use crate::Error;

/// JAX copies memory that is aligned to less than this many bytes.
pub(crate) const ALIGN: usize = 64;

/// Zeroed bytes at an address that is a multiple of [`ALIGN`].
pub(crate) struct Buffer {
    data: NonNull<u8>,
    size: usize,
}

// SAFETY: it owns its bytes, like a `Box<[u8]>` (R9).
unsafe impl Send for Buffer {}
// SAFETY: the same.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// # Errors
    ///
    /// [`OutOfMemory`](Error::OutOfMemory): sizes come from whoever asks for a shape, so that
    /// running out of memory must not end the process.
    pub(crate) fn zeroed(size: usize) -> Result<Self, Error> {
        let none = || Error::OutOfMemory { size };
        let layout = Layout::from_size_align(size, ALIGN).map_err(|_| none())?;
        if size == 0 {
            let dangling = ptr::without_provenance_mut(ALIGN);
            return Ok(Self { data: NonNull::new(dangling).expect("64 is not null"), size });
        }
        // SAFETY: the size is not zero (R7).
        let data = unsafe { alloc_zeroed(layout) };
        Ok(Self { data: NonNull::new(data).ok_or_else(none)?, size })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.size != 0 {
            let layout = Layout::from_size_align(self.size, ALIGN).expect("as in `zeroed`");
            // SAFETY: allocated by `zeroed` with this layout, freed here once (R7).
            unsafe { dealloc(self.data.as_ptr(), layout) };
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: this type's invariant (R7).
        unsafe { slice::from_raw_parts(self.data.as_ptr(), self.size) }
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: this type's invariant, and the borrow is unique (R7).
        unsafe { slice::from_raw_parts_mut(self.data.as_ptr(), self.size) }
    }
}
