//! `Complex<T>` is `repr(C)`, the real part first, as DLPack's complex numbers are.
#![allow(unsafe_code)]

use num_complex::Complex;

use crate::raw::element::plain;

plain! {
    Complex<f32> = COMPLEX64;
    Complex<f64> = COMPLEX128;
}

#[cfg(feature = "half-2")]
plain! {
    Complex<half::f16> = COMPLEX32;
}
