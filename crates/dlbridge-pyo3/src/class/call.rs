//! A call of `__dlpack__`: what it asks, and the capsule that answers.
//! Which answer a request permits belongs to `dlbridge::protocol::call`.

use dlbridge::protocol::call::Request;
use dlbridge::{Tensor, protocol};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString, PyTuple};

use crate::error::error_of;
use crate::ffi::callbacks::{Argument, Call};
use crate::ffi::capsule;
use crate::interpreter::{Once, through_pyo3};
use crate::stream::{Ready, Stream, copy, is_copied_to_host};
use crate::{Error, Result};

/// The request and the stream of a call of `__dlpack__` (array API standard 2024.12).
#[inline]
pub(super) fn request<'a, 'py>(
    call: &Call<'a, 'py>,
) -> Result<(Request, Option<Argument<'a, 'py>>)> {
    let found = call.count();
    if found > 0 {
        return refused(format!("__dlpack__() takes no positional arguments, found {found}"));
    }
    let py = call.py();
    let known = [
        intern!(py, "max_version"),
        intern!(py, "dl_device"),
        intern!(py, "copy"),
        intern!(py, "stream"),
    ];
    let (mut request, mut stream) = (Request::default(), None);
    for (name, value) in call.keywords() {
        // The names in a program are interned.
        let index = match known.iter().position(|known| name.is(known)) {
            Some(index) => index,
            None => index_of(&known, name)?,
        };
        match index {
            _ if value.is_none() => {}
            0 => request.max_version = Some(max_version(name, value)?),
            1 => {
                let expected = "two numbers, such as those that __dlpack_device__() returns";
                let (kind, id) = extract(name, value, expected)?;
                request.dl_device = Some(protocol::device(kind, id));
            }
            2 => request.copy = Some(extract(name, value, "True, False or None")?),
            _ => stream = Some(value),
        }
    }
    Ok((request, stream))
}

/// Makes a capsule over a tensor's memory, or over a copy. The requested stream waits until the
/// memory is `ready`.
pub(super) fn answer<'py>(
    py: Python<'py>,
    request: Request,
    stream: Option<Argument<'_, 'py>>,
    tensor: Tensor,
    ready: Option<&Ready>,
) -> Result<Bound<'py, PyAny>> {
    let device = tensor.device();
    let answer = request.answer(device, is_copied_to_host).map_err(Error::refused)?;
    let stream = Stream::requested(stream, answer.device)?;
    let exported = if answer.copy {
        copy(py, &tensor, ready, answer.device)?
    } else {
        if let Some(ready) = ready {
            ready.before(stream, device)?;
        }
        tensor
    };
    if answer.versioned { capsule::versioned(py, exported) } else { capsule::legacy(py, exported) }
}

/// The index of a name that is not interned.
#[cold]
fn index_of(known: &[&Bound<'_, PyString>], name: Argument<'_, '_>) -> Result<usize> {
    let name: &str = name.extract()?;
    match known.iter().position(|known| **known == name) {
        Some(index) => Ok(index),
        None => refused(format!("__dlpack__() got an unexpected keyword argument '{name}'")),
    }
}

#[cold]
fn refused<T>(message: String) -> Result<T> {
    Err(error_of::<PyTypeError>(message).into())
}

/// The value of a keyword, of which `expected` is the text for an error.
#[inline]
fn extract<'a, 'py, T>(
    name: Argument<'_, 'py>,
    value: Argument<'a, 'py>,
    expected: &str,
) -> Result<T>
where
    T: FromPyObject<'a, 'py, Error = PyErr>,
{
    through_pyo3(|| value.extract().or_else(|error| unfit(name, value, expected, error)))
}

/// A tuple, and the version in it.
type Known = (Py<PyAny>, (u32, u32));

/// The version in a tuple. A consumer passes the same tuple in each call, so the first ones are kept, with what they say.
#[inline]
fn max_version(name: Argument<'_, '_>, value: Argument<'_, '_>) -> Result<(u32, u32)> {
    const EXPECTED: &str = "a tuple of two numbers, such as (1, 3)";
    static KNOWN: [Once<Known>; 3] = [const { Once::new() }; 3];
    // A tuple of ints always says the same.
    let is_int = |item: Argument<'_, '_>| item.is_exact_instance_of::<PyInt>();
    let is_constant =
        || value.cast_exact::<PyTuple>().is_ok_and(|it| it.iter_borrowed().all(is_int));
    let make = || {
        let version = if is_constant() { extract(name, value, EXPECTED).ok() } else { None };
        Ok::<_, ()>((value.to_owned().unbind(), version.ok_or(())?))
    };
    for known in &KNOWN {
        match known.get_or_make(value.py(), make) {
            Ok((tuple, version)) if value.is(tuple) => return Ok(*version),
            Ok(_) => {}
            Err(()) => break,
        }
    }
    extract(name, value, EXPECTED)
}

/// The error for a value of another type, or for a tuple of another length. An exception that the value's own code raised is
/// not replaced.
#[cold]
fn unfit<T>(
    name: Argument<'_, '_>,
    value: Argument<'_, '_>,
    expected: &str,
    error: PyErr,
) -> Result<T> {
    let py = name.py();
    let (is_type, is_value) =
        (error.is_instance_of::<PyTypeError>(py), error.is_instance_of::<PyValueError>(py));
    if !is_type && !is_value {
        return Err(error.into());
    }
    let message = format!("{}: expected {expected}, found {}", &*name, value.repr()?);
    if is_type { refused(message) } else { Err(error_of::<PyValueError>(message).into()) }
}
