//! The type strings of the array interface protocols.
//! Struct formats of the buffer protocol belong to `buffer`.
//! Invariant: only numbers in this machine's byte order have a dtype.

use dlbridge::{DType, TypeCode};

use crate::{Error, Result};

/// This machine's byte order, as a type string writes it.
const NATIVE: char = if cfg!(target_endian = "little") { '<' } else { '>' };

/// The dtype of a type string (NumPy's array interface protocol, `typestr`): byte order, kind,
/// size in bytes.
pub(crate) fn dtype_of(typestr: &str) -> Result<DType> {
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
pub(crate) fn of(dtype: DType) -> Option<String> {
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
    dtype_of(&typestr).is_ok_and(|found| found == dtype).then_some(typestr)
}

/// The type string of unsigned integers with the same size as a dtype, which has none of its own.
pub(crate) fn of_bits(dtype: DType) -> Option<String> {
    let bits = u8::try_from(8 * dtype.itemsize()?).ok()?;
    of(DType::new(TypeCode::UINT, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_native_order_have_a_dtype() {
        let native = |rest: &str| dtype_of(&format!("{NATIVE}{rest}")).expect("a number");
        assert_eq!(native("f4"), DType::F32);
        assert_eq!(native("i8"), DType::I64);
        assert_eq!(native("u2"), DType::U16);
        assert_eq!(native("c16"), DType::COMPLEX128);
        assert_eq!(dtype_of("|b1").expect("a number"), DType::BOOL);
        assert_eq!(dtype_of(">i1").expect("a byte has no order"), DType::I8);
        for &dtype in DType::NAMED {
            let Some(typestr) = of(dtype) else { continue };
            assert_eq!(dtype_of(&typestr).expect("a number"), dtype);
        }
        assert_eq!((of(DType::BOOL).as_deref(), of(DType::BF16)), (Some("|b1"), None));
        assert_eq!(
            (of(DType::F32), of(DType::F32.with_lanes(2))),
            (Some(format!("{NATIVE}f4")), None)
        );
        assert_eq!(of_bits(DType::BF16), of(DType::U16));
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
            let message = dtype_of(typestr).expect_err(typestr).to_string();
            assert!(message.contains(&format!("found {typestr:?}")), "{message}");
        }
    }
}
