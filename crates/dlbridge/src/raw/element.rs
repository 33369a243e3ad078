//! Element types: the Rust types that tensor elements can be read as.
//! Invariant: an `Element` has the size of its dtype, and `read` makes a valid value of any bytes.

use crate::DType;

/// A Rust type for elements of one dtype.
///
/// Implemented for all integers, floats and `bool`, and by feature for `half::f16`,
/// `half::bf16` (`half-2`), `num_complex::Complex` (`num-complex-0_4`), and the 8-bit and paired
/// 4-bit floats of `float8` (`float8-0_7`), `microfloat` (`microfloat-0_1`) and `float4`
/// (`float4-0_2`).
///
/// # Safety
///
/// - The type has the size of one element of [`DTYPE`](Self::DTYPE), whole bytes, and no padding.
/// - Every bit pattern is a valid value, except that a type whose dtype has the code
///   [`BOOL`](crate::TypeCode::BOOL) may have only the values 0 and 1.
/// - [`read`](Self::read) returns a valid value for any bytes.
/// - [`copy_run`](Self::copy_run) writes `len` valid values.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The dtype whose elements this type reads.
    const DTYPE: DType;

    /// Reads one element. The address needs no alignment.
    ///
    /// # Safety
    ///
    /// `source` is valid for reads of `size_of::<Self>()` initialised bytes.
    #[doc(hidden)]
    #[must_use]
    #[inline(always)]
    unsafe fn read(source: *const u8) -> Self {
        // SAFETY: the caller's duty; any bytes are a value for types that keep this default.
        unsafe { source.cast::<Self>().read_unaligned() }
    }

    /// Copies `len` contiguous elements to `target`.
    ///
    /// # Safety
    ///
    /// `source` is valid for reads of `len` elements and `target` for writes of as many, and
    /// they do not overlap.
    #[doc(hidden)]
    #[inline(always)]
    unsafe fn copy_run(source: *const u8, target: *mut Self, len: usize) {
        let size = len * size_of::<Self>();
        // SAFETY: the caller's duty, counted in bytes.
        unsafe { source.copy_to_nonoverlapping(target.cast(), size) }
    }
}

/// An [`Element`] for which every pattern of bits is a value, so that foreign memory can be
/// borrowed as `&[T]`. All elements but `bool`.
///
/// # Safety
///
/// Every bit pattern of the type's size is a valid value, and the dtype's code is not
/// [`BOOL`](crate::TypeCode::BOOL): a `&mut [T]` could write other bytes than 0 and 1 to a `Vec<bool>`.
pub unsafe trait Plain: Element {}

macro_rules! plain {
    ($($ty:ty = $dtype:ident;)*) => {$(
        // SAFETY: a type without padding, any bits of which are a value, of the dtype's size
        // (asserted below; R8).
        unsafe impl $crate::Element for $ty {
            const DTYPE: $crate::DType = $crate::DType::$dtype;
        }

        // SAFETY: every bit pattern is a number (R8).
        unsafe impl $crate::Plain for $ty {}

        const _: () = assert!(size_of::<$ty>() * 8 == $crate::DType::$dtype.element_bits() as usize);
    )*};
}

#[allow(unused_imports, reason = "each use is behind a feature")]
pub(crate) use plain;

plain! {
    i8 = I8;
    i16 = I16;
    i32 = I32;
    i64 = I64;
    i128 = I128;
    u8 = U8;
    u16 = U16;
    u32 = U32;
    u64 = U64;
    u128 = U128;
    f32 = F32;
    f64 = F64;
}

#[cfg(target_pointer_width = "64")]
plain! {
    isize = I64;
    usize = U64;
}

#[cfg(target_pointer_width = "32")]
plain! {
    isize = I32;
    usize = U32;
}

// SAFETY: one byte; any byte but 0 reads as true (R8).
unsafe impl Element for bool {
    const DTYPE: DType = DType::BOOL;

    #[inline(always)]
    unsafe fn read(source: *const u8) -> Self {
        // SAFETY: the caller's duty.
        unsafe { source.read() != 0 }
    }

    #[inline(always)]
    unsafe fn copy_run(source: *const u8, target: *mut Self, len: usize) {
        for i in 0..len {
            // SAFETY: below `len`, so inside the source (the caller's duty).
            let value = unsafe { Self::read(source.wrapping_add(i)) };
            // SAFETY: the same.
            unsafe { target.wrapping_add(i).write(value) };
        }
    }
}
