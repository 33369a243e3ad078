//! Without the feature `cuda`: the error for an object that has CUDA's array interface.

use dlbridge::Tensor;
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use super::advice;
use super::options::Protocol;
use crate::Result;
use crate::interpreter::Attributes;
use crate::stream::Stream;

/// The error for an object with the interface; `None` for another object.
pub(super) fn import(
    object: Borrowed<'_, '_, PyAny>,
    _: Stream,
) -> Result<Option<(Tensor, Protocol)>> {
    let name = intern!(object.py(), "__cuda_array_interface__");
    match object.attribute_opt(name)? {
        Some(_) => Err(advice::needs_feature(object, name, "cuda")),
        None => Ok(None),
    }
}
