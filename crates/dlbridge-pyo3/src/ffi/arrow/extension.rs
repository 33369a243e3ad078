//! The extension types of Arrow: their names, and the shape of `arrow.fixed_shape_tensor`.

use pyo3::intern;
use pyo3::prelude::*;

use crate::error::unless_refused;
use crate::{Error, Result};

/// The extension type of columns whose rows are tensors of one shape.
pub(super) const TENSOR: &str = "arrow.fixed_shape_tensor";

const NAME: &[u8] = b"ARROW:extension:name";
const PARAMETERS: &[u8] = b"ARROW:extension:metadata";

/// The name and the parameters of the extension type in a schema's metadata, if it has one.
pub(super) fn named<'a>(metadata: &[(&'a [u8], &'a [u8])]) -> Option<(&'a str, &'a [u8])> {
    let value =
        |key: &[u8]| metadata.iter().rev().find(|(name, _)| *name == key).map(|pair| pair.1);
    let name = std::str::from_utf8(value(NAME)?).unwrap_or("of an unknown name");
    Some((name, value(PARAMETERS).unwrap_or(&[])))
}

/// The axes of each row.
pub(super) struct Shape {
    /// The extents in the order of the memory.
    pub(super) extents: Vec<i64>,
    /// The axis of the memory for each axis of the row.
    pub(super) permutation: Option<Vec<usize>>,
}

impl Shape {
    /// Reads the parameters of a tensor type, which are JSON, for rows of `size` values.
    pub(super) fn read(py: Python<'_>, parameters: &[u8], size: i64) -> Result<Self> {
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
        let permutation: Option<Vec<usize>> = match parsed.call_method1("get", ("permutation",)) {
            Ok(order) => order.extract().map_err(|_| wrong(&text))?,
            Err(_) => None,
        };
        if let Some(order) = &permutation {
            let is_order = order.len() == extents.len()
                && (0..extents.len()).all(|axis| order.contains(&axis));
            if !is_order {
                return Err(wrong(&text));
            }
        }
        let permutation = permutation.filter(|order| !order.is_sorted());
        Ok(Self { extents, permutation })
    }
}
