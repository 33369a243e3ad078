//! `float4` 0.2: pairs of 4-bit floats, and the power-of-two scales beside them, as elements.
//! Its single `F4E2M1` does not belong here: it takes a byte, DLPack packs two into one.
//! Invariant: both are transparent over `u8`; a pair has its first number in the low bits.

use super::{Element, Plain};
use crate::DType;

// SAFETY: transparent over `u8`, as long as two numbers of 4 bits; every byte is a pair (R8).
unsafe impl Element for float4::F4E2M1x2 {
    const DTYPE: DType = DType::FLOAT4_E2M1FN.with_lanes(2);
}

// SAFETY: every bit pattern is a pair of numbers (R8).
unsafe impl Plain for float4::F4E2M1x2 {}

plain! {
    float4::E8M0 = FLOAT8_E8M0FNU;
}
