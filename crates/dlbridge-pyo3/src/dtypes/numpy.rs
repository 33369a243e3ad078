//! NumPy's type numbers and type strings, and the corresponding DLPack dtypes.
//! Reading or making an array does not belong here (see `ffi::numpy` and `export`), nor the struct formats of the buffer
//! protocol (see `buffer`).
//! Invariant: only type strings of numbers in this machine's byte order have a dtype.

use std::ffi::c_int;

use dlbridge::sys::{DLDataType, DLDataTypeCode as Code};
use dlbridge::{DType, TypeCode};

use crate::{Error, Result};

/// The number of NumPy type numbers that can have a DLPack dtype; the last is float16's.
pub(crate) const TYPES: usize = 24;

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

/// NumPy's type number of a dtype.
#[inline]
pub(crate) fn number_of(dtype: DType) -> Option<c_int> {
    // Of two numbers for one type, the first.
    const IS_LONG: bool = std::ffi::c_long::BITS == 64;
    Some(match dtype {
        DType::BOOL => 0,
        DType::I8 => 1,
        DType::U8 => 2,
        DType::I16 => 3,
        DType::U16 => 4,
        DType::I32 => 5,
        DType::U32 => 6,
        DType::I64 => {
            if IS_LONG {
                7
            } else {
                9
            }
        }
        DType::U64 => {
            if IS_LONG {
                8
            } else {
                10
            }
        }
        DType::F32 => 11,
        DType::F64 => 12,
        DType::COMPLEX64 => 14,
        DType::COMPLEX128 => 15,
        DType::F16 => 23,
        _ => return None,
    })
}

/// This machine's byte order, as a type string writes it.
const NATIVE: char = if cfg!(target_endian = "little") { '<' } else { '>' };

/// The dtype of a type string (NumPy's array interface protocol, `typestr`): byte order, kind,
/// size in bytes.
pub(crate) fn dtype_of_typestr(typestr: &str) -> Result<DType> {
    let refused = |why: &str| {
        let message = format!("typestr: expected {why}, found {typestr:?}");
        Err(Error::dtype(message))
    };
    let mut letters = typestr.chars();
    let (order, kind) = (letters.next(), letters.next());
    let digits = letters.as_str();
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let (Some(order), Some(kind), true, Ok(size)) = (order, kind, is_number, digits.parse::<u16>())
    else {
        return refused("byte order, kind and size, as in \"<f4\"");
    };
    let (code, sizes): (TypeCode, &[u16]) = match kind {
        'b' => (TypeCode::BOOL, &[1]),
        'i' => (TypeCode::INT, &[1, 2, 4, 8]),
        'u' => (TypeCode::UINT, &[1, 2, 4, 8]),
        'f' => (TypeCode::FLOAT, &[2, 4, 8]),
        'c' => (TypeCode::COMPLEX, &[8, 16]),
        _ => return refused("a kind of number: b, i, u, f or c"),
    };
    if !sizes.contains(&size) {
        return refused("a size that this kind of number has");
    }
    // A single byte has no order; '|' says so, but not every producer does.
    match order {
        '|' if size == 1 => {}
        '<' | '>' if size == 1 || order == NATIVE => {}
        '<' | '>' => return refused("this machine's byte order"),
        _ => return refused("a byte order: <, > or |"),
    }
    Ok(DType::new(code, (8 * size) as u8))
}

/// The type string of a dtype; `None` if NumPy's own types lack it.
#[cfg(any(feature = "cuda", feature = "tensor-methods", test))]
pub(crate) fn typestr_of(dtype: DType) -> Option<String> {
    let kind = match dtype.code {
        TypeCode::BOOL => 'b',
        TypeCode::INT => 'i',
        TypeCode::UINT => 'u',
        TypeCode::FLOAT => 'f',
        TypeCode::COMPLEX => 'c',
        _ => return None,
    };
    let size = dtype.bits / 8;
    let order = if size == 1 { '|' } else { NATIVE };
    let typestr = format!("{order}{kind}{size}");
    // Only sizes that this kind of number has.
    dtype_of_typestr(&typestr).is_ok_and(|found| found == dtype).then_some(typestr)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn numbers_in_native_order_have_a_dtype() {
        let native = |rest: &str| dtype_of_typestr(&format!("{NATIVE}{rest}")).expect("a number");
        assert_eq!(native("f4"), DType::F32);
        assert_eq!(native("i8"), DType::I64);
        assert_eq!(native("u2"), DType::U16);
        assert_eq!(native("c16"), DType::COMPLEX128);
        assert_eq!(dtype_of_typestr("|b1").expect("a number"), DType::BOOL);
        assert_eq!(dtype_of_typestr(">i1").expect("a byte has no order"), DType::I8);
        for &dtype in DType::NAMED {
            let Some(typestr) = typestr_of(dtype) else { continue };
            assert_eq!(dtype_of_typestr(&typestr).expect("a number"), dtype);
        }
        assert_eq!(
            (typestr_of(DType::BOOL).as_deref(), typestr_of(DType::BF16)),
            (Some("|b1"), None)
        );
        assert_eq!(
            (typestr_of(DType::F32), typestr_of(DType::F32.with_lanes(2))),
            (Some(format!("{NATIVE}f4")), None)
        );
    }

    #[test]
    fn everything_else_is_refused() {
        let other = if NATIVE == '<' { ">f4" } else { "<f4" };
        let wrong = [
            other,
            "",
            "<",
            "<f",
            "f4",
            "<f4 ",
            "<f+4",
            "<f3",
            "<f16",
            "<f99999999",
            "|f4",
            "=f4",
            "|O8",
            "<U4",
            "|S3",
            "<M8[ns]",
            "|V4",
            "<é4",
            "é",
            "<c4",
            "<b4",
        ];
        for typestr in wrong {
            let message = dtype_of_typestr(typestr).expect_err(typestr).to_string();
            assert!(message.contains(&format!("found {typestr:?}")), "{message}");
        }
    }
}
