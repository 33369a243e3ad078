//! Structs that the caller fills: their first field is their size, so that later versions can add
//! fields at the end.
//! What the fields mean does not belong here.
//! Invariant: no byte beyond the caller's struct is read.

use crate::error::{Error, Result};

/// Reads a struct of C.
///
/// # Safety
///
/// `T` begins with `struct_size: usize`, and any bytes are a value of it. `place` points to a struct
/// of as many bytes as its first field says.
pub(crate) unsafe fn read<T: Copy>(place: *const T) -> Result<T> {
    // SAFETY: every struct has its first field (the caller's duty).
    let found = unsafe { place.cast::<usize>().read() };
    let expected = size_of::<T>();
    if found != expected {
        return Err(Error::StructSize { expected, found });
    }
    // SAFETY: as large as `T` (the caller's duty).
    Ok(unsafe { place.read() })
}
