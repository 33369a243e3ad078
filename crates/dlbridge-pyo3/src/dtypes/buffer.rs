//! The struct formats of the buffer protocol, and dtypes.
//! The array interface's type strings belong to `numpy`.
//! Invariant: a format has a dtype if and only if it is a single number in this machine's byte
//! order.

use std::ffi::{CStr, c_int, c_long, c_short};

use dlbridge::{DType, TypeCode};
use pyo3::ffi::Py_ssize_t;

use crate::{Error, Result};

/// Which of `<` and `>` is this machine's byte order.
const NATIVE: u8 = if cfg!(target_endian = "little") { b'<' } else { b'>' };

/// The dtype of items of this format (the `struct` module, and PEP 3118's `Z`).
///
/// The size is that of the buffer's items, since `ctypes` writes `<l` for 8 bytes. It must be the
/// native or the standard size of the letter.
pub(crate) fn dtype_of(format: &[u8], itemsize: usize) -> Result<DType> {
    let refused = |expected: &str| {
        let format = String::from_utf8_lossy(format);
        let message = format!("format: expected {expected}, found {format:?} of {itemsize} bytes");
        Err(Error::dtype(message))
    };
    let letters = match format {
        [b'@' | b'=', letters @ ..] => letters,
        [order @ (b'<' | b'>' | b'!'), letters @ ..] => {
            let order = if *order == b'!' { b'>' } else { *order };
            if order != NATIVE && itemsize != 1 {
                return refused("this machine's byte order");
            }
            letters
        }
        _ => format,
    };
    let long = size_of::<c_long>();
    let (code, sizes): (TypeCode, &[usize]) = match letters {
        b"?" => (TypeCode::BOOL, &[1]),
        b"c" | b"B" => (TypeCode::UINT, &[1]),
        b"b" => (TypeCode::INT, &[1]),
        b"h" => (TypeCode::INT, &[size_of::<c_short>()]),
        b"H" => (TypeCode::UINT, &[size_of::<c_short>()]),
        b"i" => (TypeCode::INT, &[size_of::<c_int>()]),
        b"I" => (TypeCode::UINT, &[size_of::<c_int>()]),
        b"l" => (TypeCode::INT, &[4, long]),
        b"L" => (TypeCode::UINT, &[4, long]),
        b"q" => (TypeCode::INT, &[8]),
        b"Q" => (TypeCode::UINT, &[8]),
        b"n" => (TypeCode::INT, &[size_of::<isize>()]),
        b"N" => (TypeCode::UINT, &[size_of::<usize>()]),
        b"e" => (TypeCode::FLOAT, &[2]),
        b"f" => (TypeCode::FLOAT, &[4]),
        b"d" => (TypeCode::FLOAT, &[8]),
        b"Zf" | b"F" => (TypeCode::COMPLEX, &[8]),
        b"Zd" | b"D" => (TypeCode::COMPLEX, &[16]),
        _ => return refused("one number"),
    };
    if sizes.contains(&itemsize) {
        Ok(DType::new(code, (8 * itemsize) as u8))
    } else {
        refused("a size that this letter has")
    }
}

/// The format of a dtype; `None` if there is none. Integers of 8 bytes have the same letter as in
/// NumPy.
pub(crate) fn format_of(dtype: DType) -> Option<&'static CStr> {
    let is_long = size_of::<c_long>() == 8;
    Some(match dtype {
        DType::BOOL => c"?",
        DType::I8 => c"b",
        DType::U8 => c"B",
        DType::I16 => c"h",
        DType::U16 => c"H",
        DType::I32 => c"i",
        DType::U32 => c"I",
        DType::I64 if is_long => c"l",
        DType::U64 if is_long => c"L",
        DType::I64 => c"q",
        DType::U64 => c"Q",
        DType::F16 => c"e",
        DType::F32 => c"f",
        DType::F64 => c"d",
        DType::COMPLEX64 => c"Zf",
        DType::COMPLEX128 => c"Zd",
        _ => return None,
    })
}

/// A size from a C struct, not yet validated.
pub(crate) fn size_of_item(itemsize: Py_ssize_t) -> Result<usize> {
    usize::try_from(itemsize)
        .map_err(|_| Error::buffer(format!("itemsize: expected 1 or more, found {itemsize}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_that_goes_out_comes_in() {
        for &dtype in DType::NAMED {
            let Some(format) = format_of(dtype) else { continue };
            let format = format.to_bytes();
            let itemsize = dtype.itemsize().expect("whole bytes");
            assert_eq!(dtype_of(format, itemsize).expect("a format"), dtype);
            assert_eq!(dtype_of(&[&[NATIVE], format].concat(), itemsize).expect("a format"), dtype);
        }
        assert_eq!(format_of(DType::BF16), None);
        assert_eq!(format_of(DType::F32.with_lanes(2)), None);
        assert_eq!(format_of(DType::FLOAT4_E2M1FN), None);
    }

    #[test]
    fn what_is_no_number_of_this_machine_is_refused() {
        let other = if NATIVE == b'<' { ">i" } else { "<i" };
        let wrong = [
            (other, 4),
            ("", 1),
            ("@", 1),
            ("2i", 8),
            ("i", 8),
            ("ii", 8),
            ("T{i:x:}", 4),
            ("O", 8),
            ("P", 8),
            ("5s", 5),
            ("x", 1),
            ("u", 4),
            ("w", 4),
            ("g", 16),
            ("é", 1),
            ("<é", 1),
            ("f", 0),
        ];
        for (format, itemsize) in wrong {
            let message = dtype_of(format.as_bytes(), itemsize).expect_err(format).to_string();
            assert!(message.contains(&format!(", found {format:?} of ")), "{message}");
        }
    }
}
