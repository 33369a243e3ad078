//! Calls Python from an operator's function, on whichever thread a framework runs it.

use std::thread;

use dlbridge::ffi::stopping;
use pyo3::ffi;
use pyo3::prelude::*;

/// Runs work that needs Python, inside an operator's function.
///
/// PyTorch, JAX and NumPy release the GIL before they call the function. [`Python::attach`] does not see that where a
/// function of PyO3 stands further up on the stack: it takes the thread for attached, and Python then crashes. This
/// function asks Python itself.
///
/// ```
/// use dlbridge_operators::{Failure, attach, operator};
/// use pyo3::prelude::*;
///
/// operator! {
///     /// Warns, and copies `x`.
///     pub fn copy(x: View<f32>, out: ViewMut<f32>) -> Result<(), Failure> as "(...)->(...)" {
///         attach(|py| py.import("warnings")?.call_method1("warn", ("copied",)).map(|_| ()))
///             .map_err(|error| error.to_string())?;
///         Ok(out.copy_from_slice(&x.map(|value| value))?)
///     }
/// }
/// ```
///
/// A thread that needs Python once that has ended stops, as it does in CPython 3.14.
pub fn attach<R>(work: impl FnOnce(Python<'_>) -> R) -> R {
    // SAFETY: may be called at any time (F1).
    while unsafe { ffi::Py_IsInitialized() } == 0 {
        thread::park();
    }
    // SAFETY: Python runs; any thread may call it, attached or not (F1).
    let _attached = Attached(unsafe { ffi::PyGILState_Ensure() });
    // SAFETY: attached above, until the end of this function (F1).
    let py = unsafe { Python::assume_attached() };
    // CPython before 3.14 may end the thread in `work`.
    stopping(|| work(py))
}

struct Attached(ffi::PyGILState_STATE);

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: the state of the call that attached this thread, once (F1, R7).
        unsafe { ffi::PyGILState_Release(self.0) };
    }
}

/// Whether this is the main interpreter of the process. PyO3 keeps its objects for all interpreters.
pub(crate) fn is_main_interpreter(_: Python<'_>) -> bool {
    // SAFETY: attached (F1).
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: an interpreter that runs (F2).
    unsafe { ffi::PyInterpreterState_GetID(interpreter) == 0 }
}
