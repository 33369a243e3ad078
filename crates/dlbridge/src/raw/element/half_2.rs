//! `half` 2: the 16-bit floats as elements.
//! Arithmetic on them belongs to `half`.
//! Invariant: both are transparent over `u16`.

use super::{Element, Plain};
use crate::DType;

plain! {
    half::f16 = F16;
    half::bf16 = BF16;
}
