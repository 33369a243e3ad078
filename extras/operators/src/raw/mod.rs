//! Foreign interfaces: PyTorch's stable C shim, XLA's foreign function interface, NumPy's ufunc C API.
#![allow(unsafe_code)]

use pyo3::{Python, ffi};

mod lanes;
pub(crate) mod numpy;
pub(crate) mod torch;
pub(crate) mod xla;

/// Whether this is the main interpreter of the process. PyO3 keeps its objects for all interpreters.
pub(crate) fn is_main_interpreter(_: Python<'_>) -> bool {
    // SAFETY: attached (F1).
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: an interpreter that runs (F2).
    unsafe { ffi::PyInterpreterState_GetID(interpreter) == 0 }
}
