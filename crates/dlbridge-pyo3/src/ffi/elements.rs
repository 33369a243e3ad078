//! Element types of foreign memory that Rust has no types for.

use dlbridge::{DType, Element};

/// A float of 16 bits, which Rust has no type for.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Half(u16);

/// The upper half of a `f32`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Bfloat(u16);

/// A real and an imaginary part.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Complex<T>(pub(crate) [T; 2]);

// SAFETY: 16 bits, any of which are a value (Element's duty).
unsafe impl Element for Half {
    const DTYPE: DType = DType::F16;
}

// SAFETY: the same.
unsafe impl Element for Bfloat {
    const DTYPE: DType = DType::BF16;
}

// SAFETY: two floats, any bits of which are a value (Element's duty).
unsafe impl Element for Complex<f32> {
    const DTYPE: DType = DType::COMPLEX64;
}

// SAFETY: the same.
unsafe impl Element for Complex<f64> {
    const DTYPE: DType = DType::COMPLEX128;
}

impl Half {
    pub(crate) fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 >> 15) << 31;
        let (exponent, mantissa) = (u32::from(self.0 >> 10) & 0x1f, u32::from(self.0) & 0x3ff);
        match exponent {
            // Subnormal: exact in a float of 32 bits.
            0 => f32::from_bits(sign | (mantissa as f32 / 16_777_216.0).to_bits()),
            0x1f => f32::from_bits(sign | 0x7f80_0000 | mantissa << 13),
            _ => f32::from_bits(sign | (exponent + 112) << 23 | mantissa << 13),
        }
    }
}

impl Bfloat {
    pub(crate) fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}
