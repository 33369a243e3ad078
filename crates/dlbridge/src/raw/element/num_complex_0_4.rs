//! `num-complex` 0.4: complex numbers as elements.
//! Arithmetic on them belongs to `num-complex`.
//! Invariant: `Complex<T>` is `repr(C)`, the real part first, as DLPack's complex numbers are.

use num_complex::Complex;

use super::{Element, Plain};
use crate::DType;

plain! {
    Complex<f32> = COMPLEX64;
    Complex<f64> = COMPLEX128;
}

#[cfg(feature = "half-2")]
plain! {
    Complex<half::f16> = COMPLEX32;
}
