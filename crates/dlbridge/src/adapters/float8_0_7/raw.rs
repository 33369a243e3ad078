//! Both are transparent over `u8`; the bits of `F8E4M3` mean what DLPack calls `e4m3fn` (no
//! infinities, 448 the largest number), those of `F8E5M2` what it calls `e5m2`.
#![allow(unsafe_code)]

use crate::raw::element::plain;

plain! {
    float8::F8E4M3 = FLOAT8_E4M3FN;
    float8::F8E5M2 = FLOAT8_E5M2;
}
