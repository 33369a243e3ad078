//! Throws the exception of Python code that a kernel has called, as PyTorch's own functions do.
//! Invariant: the C++ function is called only after it gave the right answer for a known tuple.

use std::path::Path;

use libloading::Library;
use pyo3::exceptions::PyBaseException;
use pyo3::ffi::{self, PyGILState_STATE};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A `std::vector<int64_t>`: its first number, its end, and the end of its room. As large as this, both are returned
/// through memory, in the same way on each machine.
#[repr(C)]
struct Longs([*mut i64; 3]);

/// `std::vector<int64_t> THPUtils_unpackLongs(PyObject*)`, which throws the exception that is set if a number is -1.
type Unpack = unsafe extern "C-unwind" fn(*mut ffi::PyObject) -> Longs;

/// Throws Python's exceptions as PyTorch does.
pub(super) struct Thrower {
    unpack: Unpack,
    minus_one: Py<PyTuple>,
}

struct Attached(PyGILState_STATE);

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: the state of the call that attached this thread, once (F1, R7).
        unsafe { ffi::PyGILState_Release(self.0) };
    }
}

impl Thrower {
    /// Finds the function in PyTorch's library for Python, whose path this is.
    pub(super) fn find(py: Python<'_>, library: &Path) -> Option<Self> {
        // SAFETY: loaded by PyTorch already, so that no initialiser runs (F5).
        let opened = unsafe { Library::new(library) }.ok()?;
        // SAFETY: C++'s name names the types of the arguments, and what the function does is compared (F5).
        let unpack = *unsafe { opened.get(b"_Z20THPUtils_unpackLongsP7_object\0") }.ok()?;
        // The function is used until the process ends.
        std::mem::forget(opened);
        let found = Self { unpack, minus_one: PyTuple::new(py, [-1]).ok()?.unbind() };
        let Longs([first, end, _]) = found.unpacked(py);
        // SAFETY: one number, if there is one; the list is never freed (F5).
        let is_right = first.wrapping_add(1) == end && !first.is_null() && unsafe { *first } == -1;
        is_right.then_some(found)
    }

    /// The list of -1, as C++ returns it: the first number, and the end. It is thrown if an exception is set.
    fn unpacked(&self, _: Python<'_>) -> Longs {
        // SAFETY: attached (F1); a live tuple (F2, F5).
        unsafe { (self.unpack)(self.minus_one.as_ptr()) }
    }

    /// Throws an exception, which passes through the frames of a kernel: "C-unwind". Returns it where it cannot.
    pub(super) fn throw(&self, error: Py<PyBaseException>) -> Option<Py<PyBaseException>> {
        // SAFETY: may be called at any time (F1).
        if unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
            // The exception would end with the state that is made for the call.
            return Some(error);
        }
        // SAFETY: Python has a state of this thread (F1). `crate::attach` would stop the exception.
        let _attached = Attached(unsafe { ffi::PyGILState_Ensure() });
        // SAFETY: attached above, until the end of this function (F1).
        let py = unsafe { Python::assume_attached() };
        PyErr::from_value(error.into_bound(py).into_any()).restore(py);
        self.unpacked(py);
        PyErr::take(py).map(|error| error.into_value(py))
    }
}
