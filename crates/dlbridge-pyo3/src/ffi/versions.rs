//! What differs between the versions of PyO3 that this crate compiles with, 0.27 to 0.30.
//! `cargo xtask test pyo3` runs the tests with the oldest and with one between.

use pyo3::prelude::*;
use pyo3::types::PyString;
#[cfg(not(windows))]
use pyo3::{Borrowed, types::PyTuple};
use pyo3::{PyTypeInfo, ffi};

#[cfg(not(windows))]
use super::ended::stopped_if_ended;

/// Locks an object on a Python without the GIL while `work` runs; elsewhere the GIL does that.
#[inline]
pub(crate) fn with_critical_section<R>(object: &Bound<'_, PyAny>, work: impl FnOnce() -> R) -> R {
    // From 0.28 on this imports a module `critical_section`, which hides the one below.
    #[allow(unused_imports, reason = "0.27 has no such module")]
    use pyo3::sync::*;
    critical_section::with_critical_section(object, work)
}

/// The path of 0.28 for 0.27, where the function stands in `pyo3::sync`.
#[allow(
    dead_code,
    unconditional_recursion,
    clippy::only_used_in_recursion,
    reason = "hidden from 0.28 on"
)]
mod critical_section {
    use pyo3::prelude::*;

    pub(super) fn with_critical_section<R>(
        object: &Bound<'_, PyAny>,
        work: impl FnOnce() -> R,
    ) -> R {
        #[allow(unused_imports, deprecated, reason = "later versions do not have it")]
        use pyo3::sync::*;
        with_critical_section(object, work)
    }
}

/// The name of a class, for messages. PyO3's own constants for it changed from version to version.
#[cold]
pub(crate) fn class_name<T: PyTypeInfo>(py: Python<'_>) -> String {
    let name = py.get_type::<T>().name();
    name.map_or_else(|_| "this class".to_owned(), |name| name.to_string())
}

unsafe extern "C" {
    // In the stable ABI since Python 3.7; PyO3 declares it for the limited API from 0.28 on.
    fn PyImport_GetModule(name: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

/// A module that is already imported. (Importing takes microseconds.)
pub(crate) fn imported_module<'py>(
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = name.py();
    // SAFETY: attached, and a name (F1, F2).
    let module = unsafe { PyImport_GetModule(name.as_ptr()) };
    // SAFETY: a new reference, or null with or without an exception set (F3).
    match unsafe { Bound::from_owned_ptr_or_opt(py, module) } {
        Some(module) => Ok(Some(module).filter(|module| !module.is_none())),
        None => PyErr::take(py).map_or(Ok(None), Err),
    }
}

// Part of the limited API since 3.12 only, but exported by every CPython since 3.9.
#[cfg(not(windows))]
unsafe extern "C-unwind" {
    fn PyObject_VectorcallMethod(
        name: *mut ffi::PyObject,
        arguments: *const *mut ffi::PyObject,
        count: usize,
        keywords: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}

/// The name of an argument, as a call takes it.
#[cfg(not(windows))]
pub(crate) struct Keyword(Py<PyTuple>);

#[cfg(not(windows))]
impl Keyword {
    pub(crate) fn new(name: &Bound<'_, PyString>) -> PyResult<Self> {
        Ok(Self((name,).into_pyobject(name.py())?.unbind()))
    }
}

/// Calls a method with one named argument.
#[cfg(not(windows))]
#[inline]
pub(crate) fn call_with_keyword<'py>(
    object: Borrowed<'_, 'py, PyAny>,
    method: &Bound<'py, PyString>,
    value: Borrowed<'_, 'py, PyAny>,
    keyword: &Keyword,
) -> PyResult<Bound<'py, PyAny>> {
    let arguments = [object.as_ptr(), value.as_ptr()];
    // SAFETY: one positional argument (the object itself) and one value for the one keyword, all
    // alive during the call (F1, F2).
    let answer = stopped_if_ended(|| unsafe {
        PyObject_VectorcallMethod(method.as_ptr(), arguments.as_ptr(), 1, keyword.0.as_ptr())
    });
    // SAFETY: a new reference, or null with an exception set (F3).
    unsafe { Bound::from_owned_ptr_or_err(object.py(), answer) }
}
