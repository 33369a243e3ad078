//! Imports the values of an object with `__arrow_c_array__` or `__arrow_c_stream__` (the Arrow
//! PyCapsule interface).
//! What the capsules hold belongs to `ffi::arrow`.

use dlbridge::Tensor;
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use crate::ffi::arrow::{self, Chunk, Chunks};
use crate::{Error, Result};

/// The method of an object with one array.
const ARRAY: &str = "__arrow_c_array__";
/// The method of an object with chunks.
const STREAM: &str = "__arrow_c_stream__";

/// Imports the values of an object's `__arrow_c_array__`: numbers without nulls, read-only, since
/// arrays are immutable; `None` if it has none.
pub(super) fn import_arrow(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let Some(method) = object.getattr_opt(intern!(object.py(), ARRAY))? else { return Ok(None) };
    let answer = method.call0()?;
    let Ok((schema, array)) = answer.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        let found = answer.repr()?;
        let message = format!("{ARRAY}: expected a pair of capsules, found {found}");
        return Err(Error::buffer(message));
    };
    arrow::import(ARRAY, &schema, &array).map(Some)
}

/// Imports the only chunk of an object's `__arrow_c_stream__`, read-only; `None` if it has none.
///
/// # Errors
///
/// A `BufferError` for several chunks, and those of a column that is not numbers.
pub(super) fn import_stream(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let Some(mut chunks) = open(object)? else { return Ok(None) };
    let py = object.py();
    let Some(first) = chunks.next(py)? else { return chunks.empty().map(Some) };
    if chunks.next(py)?.is_some() {
        return Err(Error::buffer(format!(
            "{STREAM}: expected one chunk, found several; join them: x.rechunk() in Polars, \
             x.combine_chunks() in pyarrow, or copy: x.to_numpy()"
        )));
    }
    first.tensor().map(Some)
}

/// Copies all chunks of an object's `__arrow_c_stream__` to new memory; `None` if it has none.
pub(super) fn copy_stream(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let Some(mut chunks) = open(object)? else { return Ok(None) };
    let mut found = Vec::new();
    let py = object.py();
    while let Some(chunk) = chunks.next(py)? {
        found.push(chunk);
    }
    if found.is_empty() { chunks.empty() } else { Chunk::joined(py, &found) }.map(Some)
}

/// Calls the method. `None` if there is no such method, or if it needs a package that is not installed
/// (pandas needs pyarrow).
fn open(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Chunks>> {
    let py = object.py();
    let Some(method) = object.getattr_opt(intern!(py, STREAM))? else { return Ok(None) };
    match method.call0() {
        Err(error) if error.is_instance_of::<PyImportError>(py) => Ok(None),
        capsule => Chunks::open(&capsule?).map(Some),
    }
}
