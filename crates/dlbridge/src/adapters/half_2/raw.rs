//! Both are transparent over `u16`.
#![allow(unsafe_code)]

use crate::raw::element::plain;

plain! {
    half::f16 = F16;
    half::bf16 = BF16;
}
