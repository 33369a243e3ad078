//! Structs that the caller fills: their first field is their size, so that later versions can add
//! fields at the end.
//! What the fields mean does not belong here.
//! Invariant: no byte beyond the caller's struct is read.

use std::mem::MaybeUninit;

use crate::error::{Error, Result};

/// No struct grows to this size: a larger one was not initialised.
const LIMIT: usize = 1024;

/// A struct that the caller fills.
///
/// # Safety
///
/// It begins with `struct_size: usize`, has no padding, and any bytes are a value of it. Zeros mean
/// that a field is not used.
pub(crate) unsafe trait Growing: Copy {
    /// The size of the first version of the struct.
    const FIRST: usize;
}

/// Reads a struct of C. Fields that an older program does not know are zero. Of a newer program, the
/// fields that this library does not know must be zero.
///
/// # Safety
///
/// `place` points to a struct of as many bytes as its first field says.
pub(crate) unsafe fn read<T: Growing>(place: *const T) -> Result<T> {
    // SAFETY: every version of the struct has its first field (the caller's duty).
    let found = unsafe { place.cast::<usize>().read() };
    let expected = size_of::<T>();
    if !(T::FIRST..LIMIT).contains(&found) {
        return Err(Error::StructSize { expected, found });
    }
    let bytes = place.cast::<u8>();
    // SAFETY: within the caller's struct (the caller's duty).
    let is_set = |at: usize| unsafe { bytes.wrapping_add(at).read() } != 0;
    if (expected..found).any(is_set) {
        return Err(Error::NewerStruct { expected, found });
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    let target = copy.as_mut_ptr().cast::<u8>();
    // SAFETY: no more bytes than either struct has (the caller's duty).
    unsafe { target.copy_from_nonoverlapping(bytes, found.min(expected)) };
    // SAFETY: any bytes are a value of `T` (`Growing`'s duty), and zeros follow the caller's.
    Ok(unsafe { copy.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::{Growing, read};

    /// A struct of today, as a program of an older version and one of a newer version have it.
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Today {
        struct_size: usize,
        first: u64,
        added: u64,
    }

    // SAFETY: `Growing`'s duty: three integers of 8 bytes on 64-bit systems, where the test runs.
    unsafe impl Growing for Today {
        const FIRST: usize = size_of::<usize>() + 8;
    }

    fn found(numbers: &[u64]) -> Option<(u64, u64)> {
        // SAFETY: `read`'s duty: the slice has as many bytes as are read of the size that it names (R7).
        let read = unsafe { read(numbers.as_ptr().cast::<Today>()) }.ok()?;
        Some((read.first, read.added))
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn structs_of_older_and_newer_programs_are_read() {
        assert_eq!(found(&[24, 1, 2, 9]), Some((1, 2)));
        // The memory behind an older struct is not a part of it.
        assert_eq!(found(&[16, 1, 9, 9]), Some((1, 0)));
        assert_eq!(found(&[32, 1, 2, 0]), Some((1, 2)));
        assert_eq!(found(&[32, 1, 2, 3]), None);
        assert_eq!(found(&[15, 1, 2, 3]), None);
        assert_eq!(found(&[u64::MAX, 1, 2, 3]), None);
    }
}
