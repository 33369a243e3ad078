//! Both are transparent over `u8`; a pair has its first number in the low bits.
#![allow(unsafe_code)]

use crate::raw::element::plain;
use crate::{DType, Element, Plain};

// SAFETY: transparent over `u8`, as long as two numbers of 4 bits; every byte is a pair (R8).
unsafe impl Element for float4::F4E2M1x2 {
    const DTYPE: DType = DType::FLOAT4_E2M1FN.with_lanes(2);
}

// SAFETY: every bit pattern is a pair of numbers (R8).
unsafe impl Plain for float4::F4E2M1x2 {}

plain! {
    float4::E8M0 = FLOAT8_E8M0FNU;
}
