//! Without the feature `columns`: the error for an object that has Arrow's C interface.

use dlbridge::Tensor;
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use super::advice;
use super::options::Protocol;
use crate::interpreter::Attributes;
use crate::{Error, Result};

/// The error for an object with columns; `None` for another object.
pub(super) fn import(object: Borrowed<'_, '_, PyAny>) -> Result<Option<(Tensor, Protocol)>> {
    refusal(object)?.map_or(Ok(None), Err)
}

pub(super) fn copy_chunks(_: Borrowed<'_, '_, PyAny>) -> Result<Option<(Tensor, Protocol)>> {
    Ok(None)
}

/// The exception that the `__dlpack__` of an object raised, or the error for columns, with that exception as its cause.
#[cold]
pub(super) fn import_column(
    object: Borrowed<'_, '_, PyAny>,
    exception: PyErr,
) -> Result<(Tensor, Protocol)> {
    match refusal(object)? {
        Some(error) => Err(error.caused_by(object.py(), exception)),
        None => Err(exception.into()),
    }
}

fn refusal(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Error>> {
    let py = object.py();
    for name in [intern!(py, "__arrow_c_array__"), intern!(py, "__arrow_c_stream__")] {
        if object.attribute_opt(name)?.is_some() {
            return Ok(Some(advice::needs_feature(object, name, "columns")));
        }
    }
    Ok(None)
}
