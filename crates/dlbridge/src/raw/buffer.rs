//! Zeroed host memory, aligned as the most demanding framework wants it.
//! Shapes and types do not belong here: it is bytes.
//! Invariant: `data` owns `size` initialised bytes, or dangles if `size` is 0.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::slice;

/// JAX copies memory that is aligned to less than this many bytes.
pub(crate) const ALIGN: usize = 64;

/// Zeroed bytes at an address that is a multiple of [`ALIGN`].
pub(crate) struct Buffer {
    data: NonNull<u8>,
    size: usize,
}

// SAFETY: it owns its bytes, like a `Box<[u8]>`.
unsafe impl Send for Buffer {}
// SAFETY: the same.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `size` must fit `isize`, as what [`layout::nbytes`](crate::layout::nbytes) returns does.
    pub(crate) fn zeroed(size: usize) -> Self {
        let layout = Self::layout(size);
        if size == 0 {
            let dangling = ptr::without_provenance_mut(ALIGN);
            return Self { data: NonNull::new(dangling).expect("64 is not null"), size };
        }
        // SAFETY: the size is not zero.
        let data = unsafe { alloc_zeroed(layout) };
        Self { data: NonNull::new(data).unwrap_or_else(|| handle_alloc_error(layout)), size }
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, ALIGN).expect("a tensor's byte size fits isize")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.size != 0 {
            // SAFETY: allocated by `zeroed` with this layout, freed here once.
            unsafe { dealloc(self.data.as_ptr(), Self::layout(self.size)) };
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: this type's invariant.
        unsafe { slice::from_raw_parts(self.data.as_ptr(), self.size) }
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: this type's invariant, and the borrow is unique.
        unsafe { slice::from_raw_parts_mut(self.data.as_ptr(), self.size) }
    }
}
