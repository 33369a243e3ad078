//! Python objects of Rust's values. PyO3's own conversions panic where Python has no memory; these raise its
//! `MemoryError`.

use std::ffi::{c_double, c_int, c_long, c_longlong};

use pyo3::ffi::{self, Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple};

/// A value of which Python has an object.
pub trait Made<'py> {
    /// Its object.
    ///
    /// # Errors
    ///
    /// A `MemoryError`.
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

/// The new reference that a function of Python returned, or the exception that it set.
fn owned(py: Python<'_>, object: *mut PyObject) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: a new reference, or null with an exception set (F3).
    unsafe { Bound::from_owned_ptr_or_err(py, object) }
}

macro_rules! made {
    ($($kind:ty, |$value:ident| $object:expr;)*) => {$(
        impl<'py> Made<'py> for $kind {
            fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let $value = self;
                // SAFETY: attached (F1).
                owned(py, unsafe { $object })
            }
        }
    )*};
}

made! {
    // Python makes an int of a `long` in fewer instructions. On Windows, it has 32 bits.
    i64, |value| match size_of::<c_long>() {
        8 => ffi::PyLong_FromLong(value as c_long),
        _ => ffi::PyLong_FromLongLong(value as c_longlong),
    };
    u64, |value| match c_long::try_from(value) {
        Ok(long) => ffi::PyLong_FromLong(long),
        Err(_) => ffi::PyLong_FromUnsignedLongLong(value),
    };
    u32, |value| ffi::PyLong_FromUnsignedLongLong(value.into());
    usize, |value| ffi::PyLong_FromSize_t(value);
    c_double, |value| ffi::PyFloat_FromDouble(value);
    [c_double; 2], |parts| ffi::PyComplex_FromDoubles(parts[0], parts[1]);
}

impl<'py> Made<'py> for bool {
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyBool::new(py, self).to_owned().into_any())
    }
}

impl<'py> Made<'py> for &str {
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(text(py, self)?.into_any())
    }
}

impl<'py> Made<'py> for &[i64] {
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(numbers(py, self)?.into_any())
    }
}

/// A tuple of ints.
pub(crate) fn numbers<'py>(py: Python<'py>, numbers: &[i64]) -> PyResult<Bound<'py, PyTuple>> {
    tuple_of(py, &mut numbers.iter().map(|&number| number.made(py)))
}

impl<'py, T> Made<'py> for Bound<'py, T> {
    fn made(self, _: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.into_any())
    }
}

impl<'py, T: Made<'py>> Made<'py> for Option<T> {
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.map_or_else(|| Ok(py.None().into_bound(py)), |value| value.made(py))
    }
}

impl<'py, A: Made<'py>, B: Made<'py>> Made<'py> for (A, B) {
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(tuple(py, [self.0.made(py), self.1.made(py)])?.into_any())
    }
}

/// A str.
pub(crate) fn text<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyString>> {
    PyString::from_bytes(py, text.as_bytes())
}

/// A tuple of objects. The code that fills it is compiled once.
pub(crate) fn tuple<'py, const N: usize>(
    py: Python<'py>,
    objects: [PyResult<Bound<'py, PyAny>>; N],
) -> PyResult<Bound<'py, PyTuple>> {
    tuple_of(py, &mut objects.into_iter() as &mut dyn ExactSizeIterator<Item = _>)
}

fn tuple_of<'py, I>(py: Python<'py>, objects: &mut I) -> PyResult<Bound<'py, PyTuple>>
where
    I: ExactSizeIterator<Item = PyResult<Bound<'py, PyAny>>> + ?Sized,
{
    // SAFETY: attached (F1).
    let made = owned(py, unsafe { ffi::PyTuple_New(objects.len() as Py_ssize_t) })?;
    for (at, object) in objects.enumerate() {
        let object = object?.into_ptr();
        // SAFETY: a new tuple, a place in it, and a reference that is given up (F1, F3).
        set(py, unsafe { ffi::PyTuple_SetItem(made.as_ptr(), at as Py_ssize_t, object) })?;
    }
    // SAFETY: a new tuple (F1).
    Ok(unsafe { made.cast_into_unchecked() })
}

/// The result of setting an item. Python refuses to set one in a tuple that other code has a reference to by then.
fn set(py: Python<'_>, status: c_int) -> PyResult<()> {
    if status == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
}

/// A dict with text as its keys.
pub struct Entries<'py>(Bound<'py, PyDict>);

impl<'py> Entries<'py> {
    /// A dict without entries.
    ///
    /// # Errors
    ///
    /// A `MemoryError`.
    pub fn new(py: Python<'py>) -> PyResult<Self> {
        // SAFETY: attached (F1).
        Ok(Self(owned(py, unsafe { ffi::PyDict_New() })?.cast_into()?))
    }

    /// Adds an entry.
    ///
    /// # Errors
    ///
    /// A `MemoryError`.
    pub fn set(&self, key: &str, value: impl Made<'py>) -> PyResult<()> {
        let py = self.0.py();
        self.0.set_item(text(py, key)?, value.made(py)?)
    }

    /// The dict.
    #[must_use]
    pub fn into_dict(self) -> Bound<'py, PyDict> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_that_other_code_finds_while_it_is_made_is_an_error() {
        Python::attach(|py| {
            let code = c"[x for x in __import__('gc').get_objects() if type(x) is tuple and len(x) == 54321]";
            let mut found = None;
            let mut objects = (0..54_321_usize).map(|at| {
                if at == 1 {
                    found = Some(py.eval(code, None, None)?);
                }
                at.made(py)
            });
            let error =
                tuple_of(py, &mut objects).expect_err("no tuple with places that nothing fills");
            assert!(error.to_string().contains("SystemError"), "{error}");
            assert!(PyErr::take(py).is_none(), "returned, not left set");
            assert_eq!(found.expect("called").len().expect("a list"), 1);
        });
    }
}
