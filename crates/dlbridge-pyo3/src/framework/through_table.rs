//! Makes an array from a tensor through an exchange table.
//! Choosing the table, and rejecting tensors that it handles wrongly, belong to `to_caller`.
//! Invariant: a tensor that the table rejects is released here, once.

use std::ffi::c_void;
use std::ptr;

use dlbridge::Tensor;
use dlbridge::sys::DLPackManagedTensorToPyObjectNoSync;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::Result;

/// Makes an array through the callback `to_object` of a table.
pub(super) fn make_array(
    py: Python<'_>,
    to_object: DLPackManagedTensorToPyObjectNoSync,
    tensor: Tensor,
) -> Result<Bound<'_, PyAny>> {
    let tensor = tensor.into_raw();
    let mut object: *mut c_void = ptr::null_mut();
    // SAFETY: the interpreter is attached, and the tensor was exported just now (F1, R3).
    let status = unsafe { to_object(tensor, &raw mut object) };
    if status != 0 {
        // Fetched first: releasing may run Python code, which must not find an exception set.
        let error = failure(py);
        // SAFETY: a table that fails leaves the tensor with its caller (`dlbridge-sys`; T1).
        unsafe { Tensor::release_raw(tensor) };
        return Err(error.into());
    }
    // SAFETY: a call that succeeds gives a new reference; null is asked for (F3).
    let object = unsafe { Bound::from_owned_ptr_or_opt(py, object.cast()) };
    object.ok_or_else(|| failure(py).into())
}

/// The exception that the table raised; some tables fail without one.
#[cold]
fn failure(py: Python<'_>) -> PyErr {
    let unsaid = || {
        PyBufferError::new_err("exchange table: expected an array, found none, without a reason")
    };
    PyErr::take(py).unwrap_or_else(unsaid)
}
