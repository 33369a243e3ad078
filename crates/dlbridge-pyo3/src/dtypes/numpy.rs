//! NumPy's type numbers and the corresponding DLPack dtypes.
//! Reading or making an array does not belong here (see `import::numpy` and `export::numpy`).
//! Invariant: one table serves both directions.

use std::ffi::c_int;

use dlbridge::DType;
use dlbridge::sys::{DLDataType, DLDataTypeCode as Code};

/// The number of NumPy type numbers that can have a DLPack dtype; the last is float16's.
const TYPES: usize = 24;

/// The number of element sizes: 1, 2, 4, 8 and 16 bytes.
const SIZES: usize = 5;

/// The DLPack dtypes of NumPy's type numbers (`NPY_TYPES`). Zero bits mean that there is none, or
/// that the array is imported by `__dlpack__`.
pub(crate) static DTYPES: [DLDataType; TYPES] = {
    const fn of(code: Code, bits: usize) -> DLDataType {
        DLDataType { code, bits: bits as u8, lanes: 1 }
    }
    const LONG: usize = std::ffi::c_long::BITS as usize;
    let mut types = [of(Code::INT, 0); TYPES];
    types[0] = of(Code::BOOL, 8);
    types[1] = of(Code::INT, 8);
    types[2] = of(Code::UINT, 8);
    types[3] = of(Code::INT, 16);
    types[4] = of(Code::UINT, 16);
    types[5] = of(Code::INT, 32);
    types[6] = of(Code::UINT, 32);
    types[7] = of(Code::INT, LONG);
    types[8] = of(Code::UINT, LONG);
    types[9] = of(Code::INT, 64);
    types[10] = of(Code::UINT, 64);
    types[11] = of(Code::FLOAT, 32);
    types[12] = of(Code::FLOAT, 64);
    types[14] = of(Code::COMPLEX, 64);
    types[15] = of(Code::COMPLEX, 128);
    types[23] = of(Code::FLOAT, 16);
    types
};

/// The type numbers by code and size; negative where there is none.
static NUMBERS: [[i8; SIZES]; Code::BOOL.0 as usize + 1] = {
    let mut numbers = [[-1; SIZES]; Code::BOOL.0 as usize + 1];
    let mut number = TYPES;
    // Downwards, so that of two numbers for one type the first stays.
    while number > 0 {
        number -= 1;
        let DLDataType { code, bits, .. } = DTYPES[number];
        if bits != 0 {
            numbers[code.0 as usize][size(bits)] = number as i8;
        }
    }
    numbers
};

/// The index of a size.
const fn size(bits: u8) -> usize {
    (bits / 8).trailing_zeros() as usize
}

/// NumPy's type number of a dtype.
#[inline]
pub(crate) fn number_of(dtype: DType) -> Option<c_int> {
    if dtype.lanes != 1 || dtype.bits < 8 || !dtype.bits.is_power_of_two() {
        return None;
    }
    let number = *NUMBERS.get(usize::from(dtype.code.0))?.get(size(dtype.bits))?;
    (number >= 0).then_some(c_int::from(number))
}

#[cfg(test)]
mod tests {
    use dlbridge::TypeCode;

    use super::*;

    #[test]
    fn both_directions_agree() {
        for code in 0..=u8::MAX {
            for bits in 0..=u8::MAX {
                let dtype = DType { code: TypeCode(code), bits, lanes: 1 };
                let known = DTYPES.iter().any(|found| (found.code.0, found.bits) == (code, bits));
                match number_of(dtype) {
                    Some(number) => {
                        let found = DTYPES[number as usize];
                        assert_eq!((found.code.0, found.bits), (code, bits));
                    }
                    None => assert!(bits == 0 || !known, "{dtype}"),
                }
                assert_eq!(number_of(DType { lanes: 2, ..dtype }), None);
            }
        }
    }
}
