//! Calls a producer's `__dlpack__`; no other file does.
//! Faster paths belong to `request`, capsules to `ffi::capsule`, other protocols to `fallback`.
//! Invariant: a producer's `__dlpack__` runs once, except that a keyword error leads to a second
//! call.

use dlbridge::Tensor;
#[cfg(not(windows))]
use dlbridge::protocol::VERSION;
use dlbridge::protocol::call::{Keywords, Next, Raised, after};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError};
use pyo3::prelude::*;
#[cfg(not(windows))]
use pyo3::types::PyTuple;
use pyo3::types::{PyCapsule, PyDict, PyType};
use pyo3::{Borrowed, intern};

use super::{Protocol, advice, columns, cuda, fallback};
use crate::Result;
use crate::ffi::capsule;
use crate::interpreter::{Attributes, through_pyo3};
#[cfg(not(windows))]
use crate::interpreter::{Keyword, Once, call_with_keyword};
use crate::stream::Stream;
use crate::types::framework_of;

/// The result of `__dlpack__`, and the keywords that it accepted.
pub(super) struct Answer<'py> {
    capsule: Bound<'py, PyAny>,
    keywords: Keywords,
}

/// The exception of the last call, and the next step.
pub(super) struct Failure {
    pub(super) exception: PyErr,
    next: Next,
}

impl Answer<'_> {
    /// Imports the tensor of the capsule.
    pub(super) fn take(self) -> Result<(Tensor, Protocol)> {
        let tensor = capsule::take(self.capsule.as_borrowed())?;
        let is_versioned =
            dlbridge::ffi::raw_fields(&tensor).is_some_and(|raw| raw.version.is_some());
        let protocol = match self.keywords.max_version {
            None => Protocol::LegacyNoKeyword,
            Some(_) if is_versioned => Protocol::Versioned,
            Some(_) => Protocol::Legacy,
        };
        Ok((tensor, protocol))
    }
}

/// Imports an object by `__dlpack__`, or by another protocol if it has no such method.
#[inline(never)]
pub(super) fn import_by_dlpack(object: Borrowed<'_, '_, PyAny>) -> Result<(Tensor, Protocol)> {
    through_pyo3(|| match ask(object, Keywords::SHARED) {
        Ok(answer) => take(object, answer, Stream::DEFAULT),
        Err(failure) => import_otherwise(object, failure),
    })
}

/// Imports the tensor of an answer, ready for `stream`.
///
/// CuPy divides the strides of a reversed view as unsigned numbers (its issue 10172), so that its capsules are rejected;
/// its `__cuda_array_interface__` has the right ones.
#[inline]
pub(super) fn take(
    object: Borrowed<'_, '_, PyAny>,
    answer: Answer<'_>,
    stream: Stream,
) -> Result<(Tensor, Protocol)> {
    answer.take().or_else(|error| {
        let found = match framework_of(&object.get_type())?.package() {
            "cupy" => cuda::import(object, stream)?,
            _ => None,
        };
        found.ok_or(error)
    })
}

/// Calls `__dlpack__`, a second time if it does not accept a keyword.
#[inline]
pub(super) fn ask<'py>(
    object: Borrowed<'_, 'py, PyAny>,
    keywords: Keywords,
) -> std::result::Result<Answer<'py>, Failure> {
    let capsule = match keywords {
        Keywords::SHARED => call_versioned(object),
        _ => call_with(object, keywords),
    };
    match capsule {
        Ok(capsule) => Ok(Answer { capsule, keywords }),
        Err(exception) => ask_again(object, keywords, exception),
    }
}

/// Continues after a call that raised. Out of line, because moving keywords and exceptions is a lot of code.
#[cold]
#[inline(never)]
fn ask_again<'py>(
    object: Borrowed<'_, 'py, PyAny>,
    keywords: Keywords,
    exception: PyErr,
) -> std::result::Result<Answer<'py>, Failure> {
    let (exception, next) = match next(object, &exception, keywords) {
        Ok(Next::Call(fewer)) => match call_with(object, fewer) {
            Ok(capsule) => return Ok(Answer { capsule, keywords: fewer }),
            Err(exception) => return ask_again(object, fewer, exception),
        },
        Ok(Next::Raise) => (advice::traced(object, exception), Next::Raise),
        Ok(next) => (exception, next),
        Err(exception) => (exception, Next::Raise),
    };
    Err(Failure { exception, next })
}

/// Decides what to do after a call that raised.
#[cold]
fn next(object: Borrowed<'_, '_, PyAny>, exception: &PyErr, keywords: Keywords) -> PyResult<Next> {
    let py = object.py();
    if exception.is_instance_of::<PyTypeError>(py) {
        let message = exception.value(py).to_string();
        return Ok(after(Raised::TypeError(&message), keywords));
    }
    let raised = if exception.is_instance_of::<PyBufferError>(py) {
        Raised::BufferError
    } else if exception.is_instance_of::<PyAttributeError>(py)
        && object.attribute_opt(intern!(py, "__dlpack__"))?.is_none()
    {
        Raised::NoMethod
    } else {
        Raised::Other
    };
    Ok(after(raised, keywords))
}

/// Continues after `__dlpack__(max_version=...)` failed.
#[cold]
fn import_otherwise(
    object: Borrowed<'_, '_, PyAny>,
    failure: Failure,
) -> Result<(Tensor, Protocol)> {
    match failure.next {
        Next::OtherProtocols if object.is_exact_instance_of::<PyCapsule>() => {
            Ok((capsule::take(object)?, Protocol::Capsule))
        }
        Next::OtherProtocols | Next::Raise if object.is_instance_of::<PyType>() => {
            Err(advice::no_array(object))
        }
        Next::OtherProtocols => {
            advice::refuse_scalar(object)?;
            fallback::import_by_fallback(object)?.ok_or_else(|| advice::no_array(object))
        }
        Next::Buffer => match fallback::import_refused(object)? {
            Some(found) => Ok(found),
            None => Err(advice::explained(object, failure.exception)),
        },
        // pyarrow raises it for all but numbers without nulls, of which Arrow's own interface says more.
        Next::Raise if failure.exception.is_instance_of::<PyTypeError>(object.py()) => {
            columns::import_column(object, failure.exception)
        }
        Next::Call(_) | Next::Raise => Err(failure.exception.into()),
    }
}

#[cold]
fn call_with<'py>(
    object: Borrowed<'_, 'py, PyAny>,
    keywords: Keywords,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let method = intern!(py, "__dlpack__");
    let Keywords { max_version, stream, dl_device, copy } = keywords;
    let passed = PyDict::new(py);
    if let Some(version) = max_version {
        passed.set_item(intern!(py, "max_version"), version)?;
    }
    if let Some(stream) = stream {
        passed.set_item(intern!(py, "stream"), stream)?;
    }
    if let Some(device) = dl_device {
        passed.set_item(intern!(py, "dl_device"), (device.kind.0, device.id))?;
    }
    if let Some(copy) = copy {
        passed.set_item(intern!(py, "copy"), copy)?;
    }
    if passed.is_empty() {
        return object.call_method0(method);
    }
    object.call_method(method, (), Some(&passed))
}

/// `object.__dlpack__(max_version=(1, 3))`.
#[cfg(not(windows))]
#[inline]
fn call_versioned<'py>(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let value = max_version(py)?.bind(py).as_any().as_borrowed();
    call_with_keyword(object, intern!(py, "__dlpack__"), value, keyword(py)?)
}

/// `object.__dlpack__(max_version=(1, 3))`.
#[cfg(windows)]
fn call_versioned<'py>(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    call_with(object, Keywords::SHARED)
}

#[cfg(not(windows))]
fn max_version(py: Python<'_>) -> PyResult<&Py<PyTuple>> {
    static VALUE: Once<Py<PyTuple>> = Once::new();
    VALUE.get_or_make(py, || Ok(VERSION.into_pyobject(py)?.unbind()))
}

#[cfg(not(windows))]
fn keyword(py: Python<'_>) -> PyResult<&Keyword> {
    static NAME: Once<Keyword> = Once::new();
    NAME.get_or_make(py, || Keyword::new(intern!(py, "max_version")))
}
