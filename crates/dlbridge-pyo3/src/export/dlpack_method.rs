//! `dlbridge.Tensor.__dlpack__` for the keywords that consumers pass, without PyO3's parser, which
//! takes a third of an exchange with NumPy.
//! Invariant: a call whose meaning is not plain goes to the method that PyO3 made.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use dlbridge::protocol::export::Request;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyInt, PyString, PyTuple, PyType};
use pyo3::{Borrowed, ffi, intern};

use super::answer::answer;
use super::class::panicked;
use super::class_methods::{Method, method};
use super::object::TensorObject;
use crate::Result;

static METHOD: Method = method(
    c"__dlpack__",
    c"__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n\
      Return a capsule over the same memory.",
    dlpack,
);

/// The method that PyO3 made.
static COMPLETE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Replaces the method of the class, which has no object yet.
pub(super) fn install(kind: &Bound<'_, PyType>) -> PyResult<()> {
    let name = intern!(kind.py(), "__dlpack__");
    COMPLETE.get_or_try_init(kind.py(), || {
        let complete = kind.getattr(name)?.unbind();
        kind.setattr(name, METHOD.descriptor(kind)?)?;
        Ok::<_, PyErr>(complete)
    })?;
    Ok(())
}

/// # Safety
///
/// Python's: attached, an object of the class, and as many arguments as there are, `count` of them
/// without a name.
unsafe extern "C" fn dlpack(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's duty.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller's duty.
    let object = unsafe { Borrowed::from_ptr(py, object) };
    // SAFETY: a tuple, or null without named arguments (the caller's duty).
    let names = unsafe { Borrowed::from_ptr_or_opt(py, names) };
    let argument = |number: usize| {
        // SAFETY: one of the arguments (the caller's duty).
        let argument = unsafe { *arguments.wrapping_add(number) };
        // SAFETY: the same.
        unsafe { Borrowed::from_ptr(py, argument) }
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| -> Result<_> {
        let this = object.cast::<TensorObject>().map_err(PyErr::from)?;
        let names = names.map(|names| names.cast::<PyTuple>()).transpose().map_err(PyErr::from)?;
        let request = if count == 0 { usual_request(names, argument) } else { None };
        match request {
            Some(request) => {
                let this = this.get();
                answer(py, request, None, this.share(), this.ready.as_deref())
            }
            None => complete(object, names, argument, count as usize),
        }
    }));
    let error = match outcome {
        Ok(Ok(capsule)) => return capsule.into_ptr(),
        Ok(Err(error)) => PyErr::from(error),
        Err(payload) => panicked("__dlpack__", payload),
    };
    error.restore(py);
    ptr::null_mut()
}

/// The names of the arguments, interned as they are in code.
struct Names {
    max_version: Py<PyString>,
    copy: Py<PyString>,
    others: [Py<PyString>; 2],
}

impl Names {
    fn get(py: Python<'_>) -> &Self {
        static NAMES: PyOnceLock<Names> = PyOnceLock::new();
        let name = |name| PyString::intern(py, name).unbind();
        NAMES.get_or_init(py, || Self {
            max_version: name("max_version"),
            copy: name("copy"),
            others: [name("dl_device"), name("stream")],
        })
    }
}

/// The request of named arguments that have one meaning each.
#[inline]
fn usual_request<'a, 'py: 'a>(
    names: Option<Borrowed<'a, 'py, PyTuple>>,
    argument: impl Fn(usize) -> Borrowed<'a, 'py, PyAny>,
) -> Option<Request> {
    let mut request = Request::default();
    let Some(names) = names else { return Some(request) };
    let known = Names::get(names.py());
    for number in 0..names.len() {
        let (name, value) = (names.get_borrowed_item(number).ok()?, argument(number));
        if name.is(&known.max_version) {
            request.max_version = if value.is_none() { None } else { Some(version(value)?) };
        } else if name.is(&known.copy) {
            let copy = || value.cast_exact::<PyBool>().ok().map(|copy| copy.is_true());
            request.copy = if value.is_none() { None } else { Some(copy()?) };
        } else if !value.is_none() || !known.others.iter().any(|other| name.is(other)) {
            return None;
        }
    }
    Some(request)
}

fn version(value: Borrowed<'_, '_, PyAny>) -> Option<(u32, u32)> {
    let pair = value.cast_exact::<PyTuple>().ok()?;
    let part = |number| {
        let part = pair.get_borrowed_item(number).ok()?;
        let part = part.cast_exact::<PyInt>().ok()?;
        // SAFETY: attached, and an int (F1).
        let part = unsafe { ffi::PyLong_AsLong(part.as_ptr()) };
        if part == -1 {
            // It may be too large.
            let _ = PyErr::take(value.py());
        }
        u32::try_from(part).ok()
    };
    if pair.len() == 2 { Some((part(0)?, part(1)?)) } else { None }
}

/// Calls the method that PyO3 made.
#[cold]
fn complete<'a, 'py: 'a>(
    object: Borrowed<'a, 'py, PyAny>,
    names: Option<Borrowed<'a, 'py, PyTuple>>,
    argument: impl Fn(usize) -> Borrowed<'a, 'py, PyAny>,
    count: usize,
) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let positional = (0..count).map(&argument);
    let positional =
        PyTuple::new(py, std::iter::once(object).chain(positional).collect::<Vec<_>>())?;
    let named = PyDict::new(py);
    for (number, name) in names.iter().flat_map(|names| names.iter_borrowed()).enumerate() {
        named.set_item(name, argument(count + number))?;
    }
    let method = COMPLETE.get(py).expect("set with this method").bind(py);
    Ok(method.call(positional, Some(&named))?)
}
