//! The type names of Arrow's C data interface: numbers, and what is refused.
//! Invariant: a type has an element type only if its elements are numbers of whole bytes.

use dlbridge::DType;

/// The format strings of numbers.
const NUMBERS: [(&str, DType); 11] = [
    ("c", DType::I8),
    ("C", DType::U8),
    ("s", DType::I16),
    ("S", DType::U16),
    ("i", DType::I32),
    ("I", DType::U32),
    ("l", DType::I64),
    ("L", DType::U64),
    ("e", DType::F16),
    ("f", DType::F32),
    ("g", DType::F64),
];

/// The dtype of a format string, if its values are numbers of whole bytes.
pub(crate) fn dtype_of(format: &str) -> Option<DType> {
    NUMBERS.iter().find(|(name, _)| *name == format).map(|&(_, dtype)| dtype)
}

/// The format string of a dtype, if Arrow has such numbers.
pub(crate) fn format_of(dtype: DType) -> Option<&'static str> {
    NUMBERS.iter().find(|&&(_, number)| number == dtype).map(|&(name, _)| name)
}

/// The size of the lists of a format string, if all have one size.
pub(crate) fn list_size_of(format: &str) -> Option<i64> {
    let digits = format.strip_prefix("+w:")?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { digits.parse::<i32>().ok().map(i64::from) } else { None }
}

/// The English name of a type that is not numbers, and what helps.
pub(crate) fn refused(format: &str) -> (&'static str, &'static str) {
    const TO_INTEGERS: &str = "; cast to the integers that they are stored as: x.to_physical() in Polars, \
        x.cast(\"int64\") in pyarrow (\"int32\" for dates of 32 bits)";
    const TO_FLOATS: &str =
        "; cast to floats: x.cast(pl.Float64) in Polars, x.cast(\"float64\") in pyarrow";
    const TO_BYTES: &str = "; cast to bytes: x.cast(pl.UInt8) in Polars, x.cast(\"uint8\") in pyarrow, \
        x.astype(\"uint8\") in pandas";
    const TO_ARRAYS: &str = "; cast to lists of one size: x.list.to_array(size) in Polars, \
        x.cast(pa.list_(pa.float32(), size)) in pyarrow";
    let is = |prefix: &str| format.starts_with(prefix);
    match format {
        "n" => ("nulls", ""),
        "b" => ("booleans, which Arrow packs as bits", TO_BYTES),
        "u" | "U" | "vu" => ("strings", "; encode them as numbers first"),
        "z" | "Z" | "vz" => ("byte strings", ""),
        "+l" | "+L" | "+vl" | "+vL" => ("lists of any size", TO_ARRAYS),
        "+s" => ("structs", "; select a field"),
        "+m" => ("maps", ""),
        "+r" => ("run-end encoded values", "; decode them first"),
        _ if is("td") => ("dates", TO_INTEGERS),
        _ if is("tt") => ("times", TO_INTEGERS),
        _ if is("ts") => ("timestamps", TO_INTEGERS),
        _ if is("tD") => ("durations", TO_INTEGERS),
        _ if is("ti") => ("intervals", ""),
        _ if is("d:") => ("decimals", TO_FLOATS),
        _ if is("w:") => ("byte strings", ""),
        _ if is("+u") => ("unions", ""),
        _ => ("a type that dlbridge does not know", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_format() {
        for (format, dtype) in NUMBERS {
            assert_eq!((dtype_of(format), format_of(dtype)), (Some(dtype), Some(format)));
        }
        assert_eq!((dtype_of(""), dtype_of("ff"), dtype_of("b")), (None, None, None));
        assert_eq!((format_of(DType::BOOL), format_of(DType::BF16)), (None, None));
    }

    #[test]
    fn a_list_size_is_a_plain_number() {
        assert_eq!((list_size_of("+w:3"), list_size_of("+w:0")), (Some(3), Some(0)));
        for wrong in ["+w:", "+w:-1", "+w:+1", "+w: 1", "+w:99999999999", "+l", "w:3"] {
            assert_eq!(list_size_of(wrong), None, "{wrong}");
        }
    }
}
