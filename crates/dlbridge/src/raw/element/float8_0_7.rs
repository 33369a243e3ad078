//! `float8` 0.7: its two 8-bit floats as elements.
//! Arithmetic on them, which saturates, belongs to `float8`.
//! Invariant: both are transparent over `u8`; the bits of `F8E4M3` mean what DLPack calls
//! `e4m3fn` (no infinities, 448 the largest number), those of `F8E5M2` what it calls `e5m2`.

use super::{Element, Plain};
use crate::DType;

plain! {
    float8::F8E4M3 = FLOAT8_E4M3FN;
    float8::F8E5M2 = FLOAT8_E5M2;
}
