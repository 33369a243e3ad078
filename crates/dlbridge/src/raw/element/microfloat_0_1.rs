//! `microfloat` 0.1: its 8-bit floats as elements, one for each kind that DLPack names.
//! Its 4-bit and 6-bit types do not belong here: they take a byte each, DLPack packs them.
//! Invariant: all are transparent over `u8`.

use super::{Element, Plain};
use crate::DType;

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
