//! The buffer protocol where the version-independent Python library has no functions for it.
//! Everything else belongs to `buffer.rs`.
//! Invariant: the same names as there.

use dlbridge::Tensor;
use pyo3::Borrowed;
use pyo3::prelude::*;

use super::memory::Memory;
use crate::{Error, Result};

pub(super) fn import(_: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    Ok(None)
}

pub(super) fn open<'py>(_: Borrowed<'_, 'py, PyAny>) -> Result<(Bound<'py, PyAny>, Memory)> {
    Err(Error::buffer("data: found an object, wanted an address: no buffers on this platform"))
}

pub(super) fn has_buffer(_: Borrowed<'_, '_, PyAny>) -> bool {
    false
}
