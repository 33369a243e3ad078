//! The extension types of Arrow: their names, and the shape of `arrow.fixed_shape_tensor`.

use std::ffi::c_char;
use std::slice;

use pyo3::intern;
use pyo3::prelude::*;

use crate::{Error, Result};

/// The extension type of columns whose rows are tensors of one shape.
pub(super) const TENSOR: &str = "arrow.fixed_shape_tensor";

const NAME: &[u8] = b"ARROW:extension:name";
const PARAMETERS: &[u8] = b"ARROW:extension:metadata";

/// The name and the parameters of a schema's extension type, if it has one.
///
/// # Safety
///
/// `metadata` is null, or points to metadata as Arrow's C data interface encodes it: the number of
/// pairs, then for each key and value its length and its bytes.
pub(super) unsafe fn name_of<'a>(metadata: *const c_char) -> Result<Option<(&'a str, Vec<u8>)>> {
    if metadata.is_null() {
        return Ok(None);
    }
    let mut at = metadata.cast::<u8>();
    // SAFETY: the caller's duty, as for every length and text below.
    let pairs = unsafe { number(&mut at) }?;
    let (mut name, mut parameters) = (None, Vec::new());
    for _ in 0..pairs {
        // SAFETY: the same.
        let key: &[u8] = unsafe { text(&mut at) }?;
        // SAFETY: the same.
        let value: &'a [u8] = unsafe { text(&mut at) }?;
        match key {
            NAME => name = Some(std::str::from_utf8(value).unwrap_or("of an unknown name")),
            PARAMETERS => parameters = value.to_vec(),
            _ => {}
        }
    }
    Ok(name.map(|name| (name, parameters)))
}

/// # Safety
///
/// `at` points to a number.
unsafe fn number(at: &mut *const u8) -> Result<usize> {
    // SAFETY: the caller's duty; numbers are not aligned.
    let number = unsafe { at.cast::<i32>().read_unaligned() };
    *at = at.wrapping_add(size_of::<i32>());
    usize::try_from(number).map_err(|_| {
        Error::buffer(format!("metadata: expected lengths of 0 or more, found {number}"))
    })
}

/// # Safety
///
/// `at` points to a number, and that many bytes, which live for `'a`.
unsafe fn text<'a>(at: &mut *const u8) -> Result<&'a [u8]> {
    // SAFETY: the caller's duty.
    let len = unsafe { number(at) }?;
    // SAFETY: the caller's duty.
    let text = unsafe { slice::from_raw_parts(*at, len) };
    *at = at.wrapping_add(len);
    Ok(text)
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
        let parsed = parsed.map_err(|_| wrong(&text))?;
        let extents: Vec<i64> =
            parsed.get_item("shape").and_then(|s| s.extract()).map_err(|_| wrong(&text))?;
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
