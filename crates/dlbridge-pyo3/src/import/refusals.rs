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
use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::{Borrowed, intern};

use crate::ffi::published::Published;
use crate::types::loaded;
use crate::{Error, Result};

/// The table that failed for an object with a property that [`is_refused`] checks.
static FAILED: AtomicPtr<DLPackExchangeAPI> = AtomicPtr::new(ptr::null_mut());

/// Whether a table is known to reject an object.
#[inline(always)]
pub(super) fn expected_of(published: Published<'_, '_>) -> bool {
    ptr::eq(FAILED.load(Ordering::Relaxed), published.table()) && is_refused(published.object())
}

/// The error of a table that just failed; none if `__dlpack__` can be called for the reason.
#[cold]
pub(super) fn after(published: Published<'_, '_>) -> Result<()> {
    let object = published.object();
    let py = object.py();
    let error = match failure(object) {
        // An interrupt stays one.
        Error::Python(error) if error.is_instance_of::<PyException>(py) => error,
        error => return Err(error),
    };
    if !object.hasattr(intern!(py, "__dlpack__"))? {
        return Err(error.into());
    }
    if is_refused(object) {
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
        PyBufferError::new_err(format!(
            "{kind}: expected a tensor, but its exchange table failed without a reason"
        ))
    });
    Error::Python(error)
}

/// Whether PyTorch's table fails for a tensor; `false` for an object without these properties.
#[cold]
fn is_refused(object: Borrowed<'_, '_, PyAny>) -> bool {
    let py = object.py();
    let is = |name: &Bound<'_, PyString>| {
        object
            .getattr_opt(name)
            .is_ok_and(|found| found.is_some_and(|it| it.is_truthy().unwrap_or(false)))
    };
    // First what PyTorch itself refuses in the least time.
    has_no_storage(object).unwrap_or(false)
        || is(intern!(py, "is_meta"))
        || is(intern!(py, "is_quantized"))
        || is(intern!(py, "is_nested"))
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
