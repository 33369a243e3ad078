//! Rejects writes to tensors that require grad, which automatic differentiation would not record.
//! Reading such a tensor is permitted, unless a constraint refuses it.
//! Invariant: only objects imported through an exchange table are checked. The `__dlpack__` of all
//! others that require grad raises an exception.

use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use crate::error::unless_refused;
use crate::ffi::callbacks::exporting;
use crate::object::TensorObject;
use crate::types::{name_of, table_of};
use crate::{Error, Result};

/// Whether an object (of PyTorch or Paddle, or a tensor of ours made from one) requires grad. Runs Python code.
pub(crate) fn requires_grad(object: Borrowed<'_, '_, PyAny>) -> Result<bool> {
    if table_of(object)?.is_none() {
        return Ok(false);
    }
    if let Ok(own) = object.cast_exact::<TensorObject>() {
        return Ok(own.get().requires_grad);
    }
    // Some types refuse every question.
    Ok(unless_refused(object.py(), exporting(|| ask(object)))?.unwrap_or(false))
}

fn ask(object: Borrowed<'_, '_, PyAny>) -> Result<bool> {
    let py = object.py();
    if let Some(answer) = object.getattr_opt(intern!(py, "requires_grad"))? {
        return Ok(answer.is_truthy()?);
    }
    match object.getattr_opt(intern!(py, "stop_gradient"))? {
        Some(stops) => Ok(!stops.is_truthy()?),
        None => Ok(false),
    }
}

/// Rejects writing to an object that requires grad.
#[inline(always)]
pub(crate) fn check(object: Borrowed<'_, '_, PyAny>) -> Result<()> {
    refuse(object, "memory to write to")
}

/// Rejects reading an object that requires grad, because the result has none.
#[inline(always)]
pub(crate) fn check_read(object: Borrowed<'_, '_, PyAny>) -> Result<()> {
    refuse(object, "an array without gradients")
}

#[inline(always)]
fn refuse(object: Borrowed<'_, '_, PyAny>, wanted: &str) -> Result<()> {
    if table_of(object)?.is_none() { Ok(()) } else { refuse_by_table(object, wanted) }
}

#[inline(never)]
fn refuse_by_table(object: Borrowed<'_, '_, PyAny>, wanted: &str) -> Result<()> {
    if !requires_grad(object)? {
        return Ok(());
    }
    Err(Error::requires_grad(wanted, &name_of(&object.get_type())))
}
