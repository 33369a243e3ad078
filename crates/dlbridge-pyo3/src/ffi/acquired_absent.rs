//! The buffer protocol where the version-independent Python library has no functions for it.
//! Invariant: the same names as in `acquired.rs`.

use dlbridge::Tensor;
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::memory::ForeignMemory;
use crate::release::NeedsInterpreter;
use crate::{Error, Result};

pub(crate) fn import_buffer(_: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    Ok(None)
}

/// No buffer is ever acquired.
pub(crate) enum Acquired {}

impl NeedsInterpreter for Acquired {
    fn release(self, _: Python<'_>) {
        match self {}
    }
}

pub(crate) fn open(_: Borrowed<'_, '_, PyAny>) -> Result<(Acquired, ForeignMemory)> {
    Err(Error::buffer("data: expected an address: no buffers on this platform, found an object"))
}

pub(crate) fn has_buffer(_: &Bound<'_, PyType>) -> bool {
    false
}
