//! Exceptions of Python code below an operator. PyTorch's C shim keeps the text of an exception only, so the Python half
//! keeps the exception, and the kernel throws it again.
//! Invariant: the C++ function is called only after it gave the right answer for a known tuple.

use std::cell::Cell;
use std::path::Path;

use libloading::Library;
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::raw::attach::{Attached, attach};

thread_local! {
    /// The exception that Python code raised last, during the call of an operator on this thread.
    static RAISED: Cell<Option<Py<PyBaseException>>> = const { Cell::new(None) };
    /// How many kernels of this thread would throw it.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// Keeps the exception of Python code for the kernel that called it, if there is one.
pub(crate) fn keep(error: Py<PyBaseException>) {
    if RUNNING.get() > 0 {
        RAISED.set(Some(error));
    }
}

/// A kernel that throws the exception of the Python code that it calls.
pub(super) struct Keeping;

impl Keeping {
    pub(super) fn new() -> Self {
        RUNNING.set(RUNNING.get() + 1);
        Self
    }

    /// The exception that was kept last.
    pub(super) fn taken(&self) -> Option<Py<PyBaseException>> {
        RAISED.take()
    }
}

impl Drop for Keeping {
    /// Drops an exception that other code has handled.
    fn drop(&mut self) {
        RUNNING.set(RUNNING.get() - 1);
        if let Some(error) = RAISED.take() {
            // PyO3 takes a thread for attached that a function of PyO3 has called, but PyTorch has released the GIL.
            attach(|_| drop(error));
        }
    }
}

/// A `std::vector<int64_t>`: its first number, its end, and the end of its room. As large as this, both are returned
/// through memory, in the same way on each machine.
#[repr(C)]
struct Longs([*mut i64; 3]);

/// `std::vector<int64_t> THPUtils_unpackLongs(PyObject*)`, which throws the exception that is set if a number is -1.
type Unpack = unsafe extern "C-unwind" fn(*mut pyo3::ffi::PyObject) -> Longs;

/// Throws Python's exceptions as PyTorch does.
pub(super) struct Thrower {
    unpack: Unpack,
    minus_one: Py<PyTuple>,
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
        if unsafe { pyo3::ffi::PyGILState_GetThisThreadState() }.is_null() {
            // The exception would end with the state that is made for the call.
            return Some(error);
        }
        let _attached = Attached::new();
        // SAFETY: attached above, until the end of this function (F1).
        let py = unsafe { Python::assume_attached() };
        PyErr::from_value(error.into_bound(py).into_any()).restore(py);
        self.unpacked(py);
        PyErr::take(py).map(|error| error.into_value(py))
    }
}
