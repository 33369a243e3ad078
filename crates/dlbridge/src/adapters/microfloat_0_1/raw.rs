//! All are transparent over `u8`.
#![allow(unsafe_code)]

use crate::raw::element::plain;

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
