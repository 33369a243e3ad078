//! The type names of Arrow's C data interface: numbers, what is refused, and extension types, with the shape of
//! `arrow.fixed_shape_tensor`.
//! Invariant: a type has an element type only if its elements are numbers of whole bytes.

use dlbridge::DType;
use pyo3::intern;
use pyo3::prelude::*;

use crate::error::unless_refused;
use crate::{Error, Result};

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

/// The extension type of columns whose rows are tensors of one shape.
pub(crate) const TENSOR: &str = "arrow.fixed_shape_tensor";

const NAME: &[u8] = b"ARROW:extension:name";
const PARAMETERS: &[u8] = b"ARROW:extension:metadata";

/// The name and the parameters of the extension type in a schema's metadata, if it has one.
pub(crate) fn extension_of<'a>(metadata: &[(&'a [u8], &'a [u8])]) -> Option<(&'a str, &'a [u8])> {
    let value =
        |key: &[u8]| metadata.iter().rev().find(|(name, _)| *name == key).map(|pair| pair.1);
    let name = std::str::from_utf8(value(NAME)?).unwrap_or("of an unknown name");
    Some((name, value(PARAMETERS).unwrap_or(&[])))
}

/// The axes of each row.
pub(crate) struct RowShape {
    /// The extents in the order of the memory.
    pub(crate) extents: Vec<i64>,
    /// The axis of the memory for each axis of the row.
    pub(crate) permutation: Option<Vec<i64>>,
}

impl RowShape {
    /// Reads the parameters of a tensor type, which are JSON, for rows of `size` values.
    pub(crate) fn read(py: Python<'_>, parameters: &[u8], size: i64) -> Result<Self> {
        let wrong = |found: &str| {
            Error::buffer(format!("{TENSOR}: expected the shape of {size} values, found {found}"))
        };
        let text = String::from_utf8_lossy(parameters);
        let parsed = py.import(intern!(py, "json"))?.call_method1("loads", (&*text,));
        let Some(parsed) = unless_refused(py, parsed)? else { return Err(wrong(&text)) };
        let extents = parsed.get_item("shape").and_then(|shape| shape.extract::<Vec<i64>>());
        let Some(extents) = unless_refused(py, extents)? else { return Err(wrong(&text)) };
        let len = extents.iter().try_fold(1_i64, |len, &extent| len.checked_mul(extent));
        if len != Some(size) || extents.iter().any(|&extent| extent < 0) {
            return Err(wrong(&text));
        }
        let permutation: Option<Vec<i64>> = match parsed.call_method1("get", ("permutation",)) {
            Ok(order) => order.extract().map_err(|_| wrong(&text))?,
            Err(_) => None,
        };
        if let Some(order) = &permutation {
            let is_order = order.len() == extents.len()
                && (0..extents.len() as i64).all(|axis| order.contains(&axis));
            if !is_order {
                return Err(wrong(&text));
            }
        }
        let permutation = permutation.filter(|order| !order.is_sorted());
        Ok(Self { extents, permutation })
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
