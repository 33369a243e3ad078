//! Calls Python from an operator's function, on whichever thread a framework runs it.
#![allow(unsafe_code)]

use std::thread;

use dlbridge::ffi::stopping_first;
use pyo3::ffi;
use pyo3::prelude::*;

/// Runs work that needs Python, inside an operator's function.
///
/// PyTorch, JAX and NumPy release the GIL before they call the function. [`Python::attach`] does not see this if a
/// function of PyO3 is further up on the stack: it takes the thread for attached, and Python then crashes. This
/// function asks Python itself.
///
/// ```
/// use dlbridge_operators::{attach, operator};
/// use dlbridge_pyo3::Result;
/// use pyo3::prelude::*;
///
/// operator! {
///     /// Warns, and copies `x`.
///     pub fn copy(x: View<f32>, out: ViewMut<f32>) -> Result<()> as "(...)->(...)" {
///         attach(|py| py.import("warnings")?.call_method1("warn", ("copied",)).map(|_| ()))?;
///         Ok(out.copy_from_slice(&x.map(|value| value))?)
///     }
/// }
/// ```
///
/// A thread that calls it after Python has ended stops, as in CPython 3.14.
pub fn attach<R>(work: impl FnOnce(Python<'_>) -> R) -> R {
    let _attached = Attached::new();
    // CPython before 3.14 may end the thread in `work`. PyO3 counts this thread as attached as well, so that it drops
    // Python objects at once.
    stopping_first(|| Python::attach(work))
}

pub(crate) struct Attached(ffi::PyGILState_STATE);

impl Attached {
    pub(crate) fn new() -> Self {
        // SAFETY: may be called at any time (F1).
        while unsafe { ffi::Py_IsInitialized() } == 0 {
            thread::park();
        }
        // SAFETY: Python runs; any thread may call it, attached or not (F1).
        Self(unsafe { ffi::PyGILState_Ensure() })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: the state of the call that attached this thread, once (F1, R7).
        unsafe { ffi::PyGILState_Release(self.0) };
    }
}

/// Whether an exception is set on this thread. Without PyO3, which would keep objects that it drops until its next call.
pub(crate) fn is_error_set() -> bool {
    let _attached = Attached::new();
    // SAFETY: attached (F1).
    !unsafe { ffi::PyErr_Occurred() }.is_null()
}

/// Sets a `ValueError` on this thread, which may be attached or not.
pub(crate) fn set_error(message: &str) {
    let _attached = Attached::new();
    // SAFETY: attached, and a live text, which is UTF-8 (F1, F2).
    let text = unsafe {
        ffi::PyUnicode_FromStringAndSize(message.as_ptr().cast(), message.len() as ffi::Py_ssize_t)
    };
    // Without memory for the text, another exception is set.
    if !text.is_null() {
        // SAFETY: Python's, which is initialised (F2).
        let class = unsafe { ffi::PyExc_ValueError };
        // SAFETY: attached; a live class and text (F1, F2).
        unsafe { ffi::PyErr_SetObject(class, text) };
        // SAFETY: a new reference of this function (F3, R7).
        unsafe { ffi::Py_DECREF(text) };
    }
}

/// Whether this is the main interpreter of the process. PyO3 keeps its objects for all interpreters.
pub(crate) fn is_main_interpreter(_: Python<'_>) -> bool {
    // SAFETY: attached (F1).
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: an interpreter that runs (F2).
    unsafe { ffi::PyInterpreterState_GetID(interpreter) == 0 }
}
