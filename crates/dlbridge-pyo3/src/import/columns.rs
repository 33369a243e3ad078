//! Imports columns, record batches and tables through Arrow's C interface.
//! What its capsules hold belongs to `ffi::arrow`.

use dlbridge::{Flags, Tensor};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use super::Protocol;
use crate::error::unless_refused;
use crate::ffi::arrow::{self, Chunk, Chunks};
use crate::ffi::buffer;
use crate::ffi::memory::reinterpret;
use crate::interpreter::Attributes;
use crate::{Error, Result};

/// The method of an object with one array.
const ARRAY: &str = "__arrow_c_array__";
/// The method of an object with chunks.
const STREAM: &str = "__arrow_c_stream__";

/// Imports an object by its `__arrow_c_array__` or `__arrow_c_stream__`; `None` if it has neither.
pub(super) fn import(object: Borrowed<'_, '_, PyAny>) -> Result<Option<(Tensor, Protocol)>> {
    if let Some(tensor) = import_arrow(object)? {
        return Ok(Some((tensor, Protocol::Arrow)));
    }
    Ok(import_stream(object)?.map(|tensor| (tensor, Protocol::ArrowStream)))
}

/// Copies the chunks of an object that has `__arrow_c_stream__` and neither DLPack nor a buffer. `None`
/// for other objects.
pub(super) fn copy_chunks(object: Borrowed<'_, '_, PyAny>) -> Result<Option<(Tensor, Protocol)>> {
    let py = object.py();
    let is_chunked = object.hasattr(intern!(py, "__arrow_c_stream__"))?
        && !object.hasattr(intern!(py, "__dlpack__"))?
        && !object.hasattr(intern!(py, "__arrow_c_array__"))?
        && !buffer::has_buffer(&object.get_type());
    if !is_chunked {
        return Ok(None);
    }
    Ok(copy_stream(object)?.map(|tensor| (tensor, Protocol::ArrowStream)))
}

/// Imports an object whose `__dlpack__` raised a `TypeError` by its `__arrow_c_array__`. If it has none, that exception
/// is raised; if Arrow's array is refused as well, that refusal, which names the cast that helps.
#[cold]
pub(super) fn import_column(
    object: Borrowed<'_, '_, PyAny>,
    exception: PyErr,
) -> Result<(Tensor, Protocol)> {
    let py = object.py();
    match import_arrow(object) {
        Ok(Some(tensor)) => Ok((tensor, Protocol::Arrow)),
        Ok(None) => Err(exception.into()),
        Err(error) if error.is_refusal(py) => Err(error.caused_by(py, exception)),
        Err(error) => Err(error),
    }
}

/// Imports the values of an object's `__arrow_c_array__`: numbers without nulls, read-only, since
/// arrays are immutable; `None` if it has none.
fn import_arrow(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let Some(method) = object.attribute_opt(intern!(object.py(), ARRAY))? else { return Ok(None) };
    let answer = method.call0()?;
    let Ok((schema, array)) = answer.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        let found = answer.repr()?;
        let message = format!("{ARRAY}: expected a pair of capsules, found {found}");
        return Err(Error::buffer(message));
    };
    let (tensor, is_of_table) = arrow::import(ARRAY, &schema, &array)?;
    own_shape(object, tensor, is_of_table).map(Some)
}

/// A column or a table with the shape that the object itself has, if it is an array of some ndim: a long table of an
/// array's elements is not the array.
fn own_shape(object: Borrowed<'_, '_, PyAny>, tensor: Tensor, is_of_table: bool) -> Result<Tensor> {
    let py = object.py();
    // Not the `shape` alone: DuckDB would run the query to count its rows.
    if object.attribute_opt(intern!(py, "ndim"))?.is_none() {
        return Ok(tensor);
    }
    let Some(shape) = object.attribute_opt(intern!(py, "shape"))? else { return Ok(tensor) };
    let Some(shape) = unless_refused(py, shape.extract::<Vec<i64>>())? else { return Ok(tensor) };
    let found = tensor.shape();
    let rows = &found[..1];
    if is_of_table && shape == rows && found[1..] == [1] {
        let dtype = tensor.dtype();
        return reinterpret(tensor, dtype, &shape, Flags::NONE);
    }
    // Lists of one size are axes here, and objects of the array there.
    let is_table = || is_of_table && shape[1..] == [1];
    if shape.starts_with(rows) && (found.starts_with(&shape) || is_table()) {
        return Ok(tensor);
    }
    Err(Error::dtype(format!(
        "shape: expected rows of an array of shape {shape:?}, found a table of shape {found:?}; pass x.to_numpy()"
    )))
}

/// Imports the only chunk of an object's `__arrow_c_stream__`, read-only; `None` if it has none.
///
/// # Errors
///
/// A `BufferError` for several chunks, and those of a column that is not numbers.
fn import_stream(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let Some(mut chunks) = open_stream(object)? else { return Ok(None) };
    let py = object.py();
    let Some(first) = chunks.next(py)? else {
        return own_shape(object, chunks.empty()?, chunks.are_of_table()).map(Some);
    };
    if chunks.next(py)?.is_some() {
        return Err(Error::buffer(format!(
            "{STREAM}: expected one chunk, found several; join them: x.rechunk() in Polars, \
             x.combine_chunks() in pyarrow, or copy: x.to_numpy()"
        )));
    }
    own_shape(object, first.tensor()?, chunks.are_of_table()).map(Some)
}

/// Copies all chunks of an object's `__arrow_c_stream__` to new memory; `None` if it has none.
fn copy_stream(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let Some(mut chunks) = open_stream(object)? else { return Ok(None) };
    let mut found = Vec::new();
    let py = object.py();
    while let Some(chunk) = chunks.next(py)? {
        found.push(chunk);
    }
    let copy = if found.is_empty() { chunks.empty() } else { Chunk::joined(py, &found) }?;
    own_shape(object, copy, chunks.are_of_table()).map(Some)
}

/// Calls `__arrow_c_stream__`. `None` if the object does not have it, or if it needs a package that is not installed
/// (pandas needs pyarrow).
fn open_stream(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Chunks>> {
    let py = object.py();
    let Some(method) = object.attribute_opt(intern!(py, STREAM))? else { return Ok(None) };
    match method.call0() {
        Err(error) if error.is_instance_of::<PyImportError>(py) => Ok(None),
        capsule => Chunks::open(&capsule?).map(Some),
    }
}
