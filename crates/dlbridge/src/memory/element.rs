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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no element of a tensor",
    note = "elements are `bool`, integers and floats; those of other crates need a feature of `dlbridge`: \
            `half-2` (f16, bf16), `num-complex-0_4`, `float8-0_7`, `microfloat-0_1` or `float4-0_2`"
)]
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be borrowed from a tensor: not every pattern of bits is a `{Self}`",
    note = "read booleans by `view()`, borrow them by `as_bools()` or `as_bools_mut()` of a `PyTensorOf`, which check each byte, or \
            copy them: `copy_as::<Array2<bool>>()`",
    note = "export a `Vec<bool>` by `Tensor::from(mask).reshape([2, 3])`, another owner by `build_read_only()`"
)]
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

// The types of other crates, each feature's lines; its page is a module of `adapters`. A number of 8 or 16
// bits is transparent over an integer, a complex number is `repr(C)` with the real part first.

#[cfg(feature = "half-2")]
plain! {
    half::f16 = F16;
    half::bf16 = BF16;
}

#[cfg(feature = "num-complex-0_4")]
plain! {
    num_complex::Complex<f32> = COMPLEX64;
    num_complex::Complex<f64> = COMPLEX128;
}

#[cfg(all(feature = "half-2", feature = "num-complex-0_4"))]
plain! {
    num_complex::Complex<half::f16> = COMPLEX32;
}

// The bits of its `F8E4M3` mean what DLPack calls `e4m3fn` (no infinities, 448 the largest number).
#[cfg(feature = "float8-0_7")]
plain! {
    float8::F8E4M3 = FLOAT8_E4M3FN;
    float8::F8E5M2 = FLOAT8_E5M2;
}

#[cfg(feature = "microfloat-0_1")]
plain! {
    microfloat::f8e3m4 = FLOAT8_E3M4;
    microfloat::f8e4m3 = FLOAT8_E4M3;
    microfloat::f8e4m3b11fnuz = FLOAT8_E4M3B11FNUZ;
    microfloat::f8e4m3fn = FLOAT8_E4M3FN;
    microfloat::f8e4m3fnuz = FLOAT8_E4M3FNUZ;
    microfloat::f8e5m2 = FLOAT8_E5M2;
    microfloat::f8e5m2fnuz = FLOAT8_E5M2FNUZ;
    microfloat::f8e8m0fnu = FLOAT8_E8M0FNU;
}

#[cfg(feature = "float4-0_2")]
plain! {
    float4::E8M0 = FLOAT8_E8M0FNU;
}

// SAFETY: transparent over `u8`, as long as two numbers of 4 bits, the first in the low ones; every byte is a
// pair (R8).
#[cfg(feature = "float4-0_2")]
unsafe impl Element for float4::F4E2M1x2 {
    const DTYPE: DType = DType::FLOAT4_E2M1FN.with_lanes(2);
}

// SAFETY: every bit pattern is a pair of numbers (R8).
#[cfg(feature = "float4-0_2")]
unsafe impl Plain for float4::F4E2M1x2 {}

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
