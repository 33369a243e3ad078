//! The arguments of a call of `__dlpack__`.
//! What a request permits belongs to `export`.

use std::convert::Infallible;

use dlbridge::protocol;
use dlbridge::protocol::call::Request;
use pyo3::FromPyObject;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString, PyTuple};

use crate::Result;
use crate::error::error_of;
use crate::ffi::callbacks::{Argument, Call};
use crate::interpreter::Once;
use crate::interpreter::through_pyo3;

/// The request and the stream of a call of `__dlpack__` (array API standard 2024.12).
#[inline]
pub(super) fn request<'a, 'py>(
    call: &Call<'a, 'py>,
) -> Result<(Request, Option<Argument<'a, 'py>>)> {
    let found = call.count();
    if found > 0 {
        return refused(format!("__dlpack__() takes no positional arguments, found {found}"));
    }
    let (mut request, mut stream) = (Request::default(), None);
    let known = Keyword::names(call.py());
    for (name, value) in call.keywords() {
        let is = |known: &Py<PyString>| name.is(known);
        // The names in a program are interned.
        let keyword = match known.iter().position(is) {
            Some(index) => Keyword::ALL[index],
            None => Keyword::named(name)?,
        };
        if value.is_none() {
            continue;
        }
        match keyword {
            Keyword::Copy => request.copy = Some(extract(keyword, value)?),
            Keyword::DlDevice => {
                let (kind, id) = extract(keyword, value)?;
                request.dl_device = Some(protocol::device(kind, id));
            }
            Keyword::MaxVersion => request.max_version = Some(max_version(value)?),
            Keyword::Stream => stream = Some(value),
        }
    }
    Ok((request, stream))
}

/// A keyword of `__dlpack__`.
#[derive(Clone, Copy)]
enum Keyword {
    Copy,
    DlDevice,
    MaxVersion,
    Stream,
}

impl Keyword {
    const ALL: [Self; 4] = [Self::Copy, Self::DlDevice, Self::MaxVersion, Self::Stream];

    fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::DlDevice => "dl_device",
            Self::MaxVersion => "max_version",
            Self::Stream => "stream",
        }
    }

    /// The names of all, interned.
    #[inline]
    fn names(py: Python<'_>) -> &[Py<PyString>; 4] {
        static NAMES: Once<[Py<PyString>; 4]> = Once::new();
        let interned = |keyword: Self| PyString::intern(py, keyword.name()).unbind();
        let Ok(names) = NAMES.get_or_make(py, || Ok::<_, Infallible>(Self::ALL.map(interned)));
        names
    }

    /// The keyword of a name that is not interned.
    #[cold]
    fn named(name: Argument<'_, '_>) -> Result<Self> {
        let name: &str = name.extract()?;
        match Self::ALL.into_iter().find(|keyword| keyword.name() == name) {
            Some(keyword) => Ok(keyword),
            None => refused(format!("__dlpack__() got an unexpected keyword argument '{name}'")),
        }
    }
}

/// The version in a tuple. A consumer passes the same tuple in each call, so the first ones are kept, with what
/// they say.
#[inline]
fn max_version(value: Argument<'_, '_>) -> Result<(u32, u32)> {
    static KNOWN: [Once<Known>; 3] = [const { Once::new() }; 3];
    let py = value.py();
    for known in &KNOWN {
        let Some((tuple, version)) = known.get(py) else {
            let version = extract(Keyword::MaxVersion, value)?;
            if is_constant(value) {
                let Ok(_) = known
                    .get_or_make(py, || Ok::<_, Infallible>((value.to_owned().unbind(), version)));
            }
            return Ok(version);
        };
        if value.is(tuple) {
            return Ok(*version);
        }
    }
    extract(Keyword::MaxVersion, value)
}

/// A tuple, and the version in it.
type Known = (Py<PyAny>, (u32, u32));

/// Whether an object always says the same version: a tuple of ints, not of objects that become ints.
#[cold]
fn is_constant(value: Argument<'_, '_>) -> bool {
    let is_int = |item: Argument<'_, '_>| item.is_exact_instance_of::<PyInt>();
    value.cast_exact::<PyTuple>().is_ok_and(|items| items.iter_borrowed().all(is_int))
}

fn refused<T>(message: String) -> Result<T> {
    Err(error_of::<PyTypeError>(message).into())
}

/// The value of a keyword.
#[inline]
fn extract<'a, 'py, T>(keyword: Keyword, value: Argument<'a, 'py>) -> Result<T>
where
    T: FromPyObject<'a, 'py, Error = PyErr>,
{
    let is_plain = value.is_exact_instance_of::<PyBool>() || is_constant(value);
    let found = if is_plain { value.extract() } else { through_pyo3(|| value.extract()) };
    found.or_else(|error: PyErr| named_in(keyword, value.py(), error))
}

/// Names the argument in a `TypeError`, as Python does.
#[cold]
fn named_in<T>(keyword: Keyword, py: Python<'_>, error: PyErr) -> Result<T> {
    if !error.is_instance_of::<PyTypeError>(py) {
        return Err(error.into());
    }
    refused(format!("argument '{}': {}", keyword.name(), error.value(py)))
}
