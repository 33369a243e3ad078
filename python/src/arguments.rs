//! Arguments of the functions, whose errors name what was expected in Python's words.
//! Dtypes, devices and streams belong to `dlbridge-pyo3`.

use dlbridge_pyo3::{CopyMode, error_of, extents, items, through_pyo3};
use pyo3::Borrowed;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A shape, or the one extent of a shape with one axis.
pub(crate) struct Shape(pub(crate) Vec<i64>);

impl<'py> FromPyObject<'_, 'py> for Shape {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        through_pyo3(|| Self::of_object(object))
    }
}

impl Shape {
    fn of_object(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let is_other = |error: &PyErr| {
            error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyOverflowError>(py)
        };
        // A failed question makes an exception, which takes longer than the answer to the other one.
        if let Ok(extents) = object.cast::<PyTuple>() {
            match extents.iter_borrowed().map(|extent| extent.extract()).collect() {
                Ok(extents) => return Ok(Self(extents)),
                Err(error) if is_other(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let one = match object.extract::<i64>() {
            Ok(extent) => return Ok(Self(vec![extent])),
            Err(error) if is_other(&error) => error,
            Err(error) => return Err(error),
        };
        let several =
            match extents(object).unwrap_or_else(|| Err(error_of::<PyTypeError>(String::new()))) {
                Ok(extents) => return Ok(Self(extents)),
                Err(error) if is_other(&error) => error,
                Err(error) => return Err(error),
            };
        let found = object.repr()?;
        let is_large = |error: &PyErr| error.is_instance_of::<PyOverflowError>(object.py());
        if is_large(&one) || is_large(&several) {
            let message = format!("shape: expected extents below 2**63, found {found}");
            return Err(error_of::<PyOverflowError>(message));
        }
        let message = format!("shape: expected an int or a sequence of ints, found {found}");
        Err(error_of::<PyTypeError>(message))
    }
}

/// The items of a dict, or of another mapping.
pub(crate) struct Items<'py>(pub(crate) Vec<Bound<'py, PyAny>>);

impl<'py> FromPyObject<'_, 'py> for Items<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Some(items) = through_pyo3(|| items(&object))? {
            return Ok(Self(items));
        }
        let message = format!("expected a dict, found {}", object.get_type().qualname()?);
        Err(error_of::<PyTypeError>(message))
    }
}

/// Whether a call copies: `copy=None`, `copy=False` or `copy=True`.
pub(crate) struct Copy(pub(crate) CopyMode);

impl<'py> FromPyObject<'_, 'py> for Copy {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match through_pyo3(|| object.extract::<Option<bool>>()) {
            Ok(None) => Ok(Self(CopyMode::IfNeeded)),
            Ok(Some(false)) => Ok(Self(CopyMode::Never)),
            Ok(Some(true)) => Ok(Self(CopyMode::Always)),
            Err(error) if !error.is_instance_of::<PyTypeError>(object.py()) => Err(error),
            Err(_) => {
                let message =
                    format!("copy: expected True, False or None, found {}", object.repr()?);
                Err(error_of::<PyTypeError>(message))
            }
        }
    }
}
