//! The arguments of a method call, and those of `__dlpack__`.
//! What a request permits belongs to `answer`.

use std::ptr::NonNull;
use std::slice;

use dlbridge::protocol;
use dlbridge::protocol::export::Request;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::{Borrowed, FromPyObject};

use crate::Result;

type Argument<'a, 'py> = Borrowed<'a, 'py, PyAny>;

/// Arguments, borrowed from the caller for a call.
#[derive(Clone, Copy)]
struct Objects<'a, 'py> {
    py: Python<'py>,
    all: &'a [NonNull<PyObject>],
}

impl<'a, 'py> Objects<'a, 'py> {
    #[inline]
    fn iter(self) -> impl ExactSizeIterator<Item = Argument<'a, 'py>> {
        // SAFETY: an object that lives during `'a` (the duty of the caller of `Call::new`).
        self.all.iter().map(move |object| unsafe { Borrowed::from_ptr(self.py, object.as_ptr()) })
    }
}

/// The arguments of a call: the positional ones, then the values of the keywords.
pub(super) struct Call<'a, 'py> {
    positional: Objects<'a, 'py>,
    values: Objects<'a, 'py>,
    names: Option<Borrowed<'a, 'py, PyTuple>>,
}

impl<'a, 'py> Call<'a, 'py> {
    /// # Safety
    ///
    /// Python's (`METH_FASTCALL | METH_KEYWORDS`): `count` objects, then one for each name; `names` is a
    /// tuple of str, or null. All live during `'a`.
    #[inline]
    pub(super) unsafe fn new(
        py: Python<'py>,
        objects: *const *mut PyObject,
        count: Py_ssize_t,
        names: *mut PyObject,
    ) -> Self {
        // SAFETY: the caller's duty.
        let names = unsafe { Borrowed::from_ptr_or_opt(py, names) };
        // SAFETY: the caller's duty.
        let names = names.map(|names| unsafe { names.cast_unchecked::<PyTuple>() });
        let count = count as usize;
        let all = match count + names.map_or(0, |names| names.len()) {
            0 => &[],
            // SAFETY: so many pointers to objects (the caller's duty).
            len => unsafe { slice::from_raw_parts(objects.cast(), len) },
        };
        let (positional, values) = all.split_at(count);
        let [positional, values] = [positional, values].map(|all| Objects { py, all });
        Self { positional, values, names }
    }

    /// The positional arguments.
    pub(super) fn positional(&self) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(self.positional.py, self.positional.iter())
    }

    /// The named arguments.
    pub(super) fn named(&self) -> PyResult<Bound<'py, PyDict>> {
        let named = PyDict::new(self.values.py);
        self.keywords().try_for_each(|(name, value)| named.set_item(name, value))?;
        Ok(named)
    }

    fn keywords(&self) -> impl Iterator<Item = (Argument<'_, 'py>, Argument<'a, 'py>)> {
        let names = self.names.iter().flat_map(|names| names.iter_borrowed());
        names.zip(self.values.iter())
    }

    /// The request and the stream of a call of `__dlpack__` (array API standard 2024.12).
    #[inline]
    pub(super) fn request(self) -> Result<(Request, Option<Argument<'a, 'py>>)> {
        if !self.positional.all.is_empty() {
            let found = self.positional.all.len();
            return refused(format!("__dlpack__() takes no positional arguments, found {found}"));
        }
        let (mut request, mut stream) = (Request::default(), None);
        let known = Keyword::names(self.values.py);
        for (name, value) in self.keywords() {
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
                Keyword::MaxVersion => request.max_version = Some(extract(keyword, value)?),
                Keyword::Stream => stream = Some(value),
            }
        }
        Ok((request, stream))
    }
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
        static NAMES: PyOnceLock<[Py<PyString>; 4]> = PyOnceLock::new();
        let interned = |keyword: Self| PyString::intern(py, keyword.name()).unbind();
        NAMES.get_or_init(py, || Self::ALL.map(interned))
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

fn refused<T>(message: String) -> Result<T> {
    Err(PyTypeError::new_err(message).into())
}

/// The value of a keyword.
#[inline]
fn extract<'a, 'py, T>(keyword: Keyword, value: Argument<'a, 'py>) -> Result<T>
where
    T: FromPyObject<'a, 'py, Error = PyErr>,
{
    value.extract().or_else(|error: PyErr| named_in(keyword, value.py(), error))
}

/// Names the argument in a `TypeError`, as Python does.
#[cold]
fn named_in<T>(keyword: Keyword, py: Python<'_>, error: PyErr) -> Result<T> {
    if !error.is_instance_of::<PyTypeError>(py) {
        return Err(error.into());
    }
    refused(format!("argument '{}': {}", keyword.name(), error.value(py)))
}
