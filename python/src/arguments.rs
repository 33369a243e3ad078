//! Arguments of the functions, whose errors name what was expected in Python's words.
//! Dtypes, devices and streams belong to `dlbridge-pyo3`.

use dlbridge_pyo3::{CopyMode, TensorObject};
use pyo3::Borrowed;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;

use crate::dispatch::FromNumber;

/// A shape, or the one extent of a shape with one axis.
pub(crate) struct Shape(pub(crate) Vec<i64>);

impl<'py> FromPyObject<'_, 'py> for Shape {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (one, several) = match (object.extract::<i64>(), object.extract::<Vec<i64>>()) {
            (Ok(extent), _) => return Ok(Self(vec![extent])),
            (_, Ok(extents)) => return Ok(Self(extents)),
            (Err(one), Err(several)) => (one, several),
        };
        let found = object.repr()?;
        let is_large = |error: &PyErr| error.is_instance_of::<PyOverflowError>(object.py());
        if is_large(&one) || is_large(&several) {
            let message = format!("shape: expected extents below 2**63, found {found}");
            return Err(PyOverflowError::new_err(message));
        }
        let message = format!("shape: expected an int or a sequence of ints, found {found}");
        Err(PyTypeError::new_err(message))
    }
}

/// An integer or any other real number.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    Integer(i128),
    Float(f64),
}

impl<'py> FromPyObject<'_, 'py> for Number {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(value) = object.extract() {
            return Ok(Self::Integer(value));
        }
        object.extract().map(Self::Float).or_else(|error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(object.py()) {
                let bits = object.call_method0("bit_length")?;
                let message =
                    format!("expected a number within float64, found an int of {bits} bits");
                return Err(PyOverflowError::new_err(message));
            }
            let message = format!("expected an int or a float, found {}", object.repr()?);
            Err(PyTypeError::new_err(message))
        })
    }
}

impl Number {
    pub(crate) fn to_element<T: FromNumber>(self) -> T {
        match self {
            Self::Integer(value) => T::from_integer(value),
            Self::Float(value) => T::from_float(value),
        }
    }

    /// The number as an element, if it is one after fractions are cut off.
    pub(crate) fn checked<T: FromNumber>(self) -> Option<T> {
        let holds = match self {
            Self::Integer(value) => T::holds_integer(value),
            Self::Float(value) => T::holds_float(value),
        };
        holds.then(|| self.to_element())
    }

    pub(crate) fn float(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => f.write_str(&in_python(*value)),
        }
    }
}

/// A float as Python writes it: `nan`, `inf`, `1.0`.
pub(crate) fn in_python(value: f64) -> String {
    format!("{value:?}").to_lowercase()
}

/// Whether a call copies: `copy=None`, `copy=False` or `copy=True`.
pub(crate) struct Copy(pub(crate) CopyMode);

impl<'py> FromPyObject<'_, 'py> for Copy {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<Option<bool>>() {
            Ok(None) => Ok(Self(CopyMode::IfNeeded)),
            Ok(Some(false)) => Ok(Self(CopyMode::Never)),
            Ok(Some(true)) => Ok(Self(CopyMode::Always)),
            Err(_) => {
                let message =
                    format!("copy: expected True, False or None, found {}", object.repr()?);
                Err(PyTypeError::new_err(message))
            }
        }
    }
}

/// A `dlbridge.Tensor`; the functions that write take no other array.
pub(crate) struct Ours<'py>(pub(crate) Bound<'py, TensorObject>);

impl<'py> FromPyObject<'_, 'py> for Ours<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(tensor) = object.cast::<TensorObject>() {
            return Ok(Self(tensor.to_owned()));
        }
        let found = object.get_type().qualname()?;
        let help =
            if object.hasattr("__dlpack__")? { "; pass dlbridge.from_dlpack(x)" } else { "" };
        let message = format!("tensor: expected a dlbridge.Tensor, found {found}{help}");
        Err(PyTypeError::new_err(message))
    }
}
