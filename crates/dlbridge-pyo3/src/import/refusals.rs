//! Handles tensors that an exchange table rejects: the error comes from `__dlpack__`.
//! Calling `__dlpack__` belongs to `dlpack`.
//! Invariant: a table that fails leads to an exception, that of `__dlpack__` if the type has the
//! method.
//!
//! PyTorch's table writes all C++ frames into its exception, which takes a thousand times as long
//! as an import. After the first failure, tensors are checked beforehand for the properties that
//! make the table fail. A program without such tensors does not pay for these checks.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use dlbridge::sys::DLPackExchangeAPI;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use crate::error::error_of;
use crate::error::unless_refused;
use crate::ffi::published::Published;
use crate::interpreter::through_pyo3;
use crate::types::loaded;
use crate::{Error, Result};

/// The table that failed for an object with a property that [`is_refused`] checks.
static FAILED: AtomicPtr<DLPackExchangeAPI> = AtomicPtr::new(ptr::null_mut());

/// Whether a table is known to reject an object.
#[inline(always)]
pub(super) fn expected_of(published: Published<'_, '_>) -> Result<bool> {
    if !ptr::eq(FAILED.load(Ordering::Relaxed), published.table()) {
        return Ok(false);
    }
    through_pyo3(|| is_refused(published.object()))
}

/// The error of a table that just failed; none if `__dlpack__` can be called for the reason.
#[cold]
pub(super) fn after(published: Published<'_, '_>) -> Result<()> {
    through_pyo3(|| judged(published))
}

fn judged(published: Published<'_, '_>) -> Result<()> {
    let object = published.object();
    let py = object.py();
    let error = failure(object);
    if !error.is_refusal(py) || !object.hasattr(intern!(py, "__dlpack__"))? {
        return Err(error);
    }
    if is_refused(object)? {
        FAILED.store(ptr::from_ref(published.table()).cast_mut(), Ordering::Relaxed);
    }
    Ok(())
}

/// The exception that the table raised; some tables fail without one.
#[cold]
pub(super) fn failure(object: Borrowed<'_, '_, PyAny>) -> Error {
    let py = object.py();
    let error = PyErr::take(py).unwrap_or_else(|| {
        let kind = object.get_type();
        error_of::<PyBufferError>(format!(
            "{kind}: expected a tensor, but its exchange table failed without a reason"
        ))
    });
    Error::from(error)
}

/// Whether PyTorch's table fails for a tensor; `false` for an object without these properties.
#[cold]
fn is_refused(object: Borrowed<'_, '_, PyAny>) -> Result<bool> {
    let py = object.py();
    let is_true = |name| match object.getattr_opt(name)? {
        Some(found) => found.is_truthy(),
        None => Ok(false),
    };
    // First what PyTorch itself refuses in the least time.
    if unless_refused(py, has_no_storage(object))? == Some(true) {
        return Ok(true);
    }
    for name in [intern!(py, "is_meta"), intern!(py, "is_quantized"), intern!(py, "is_nested")] {
        if unless_refused(py, is_true(name))? == Some(true) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a tensor of PyTorch has no storage: sparse, of MKL-DNN, or of a transform (`vmap`).
fn has_no_storage(object: Borrowed<'_, '_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    let Some(module) = loaded(intern!(py, "torch._C"))? else {
        return Ok(false);
    };
    let has_storage = module.call_method1(intern!(py, "_has_storage"), (object,))?;
    Ok(!has_storage.is_truthy()?)
}
