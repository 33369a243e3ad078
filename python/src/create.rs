//! `zeros`, `arange` and `from_bytes`: tensors over memory that Rust owns.
//! Invariant: every tensor created here is contiguous, writable and 64-byte aligned.

use dlbridge::{DType, ErrorKind, Tensor};
use dlbridge_pyo3::{Error, PyDType, Result, TensorObject};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::dispatch::{FromNumber, with_element};

/// A shape, or the one extent of a shape with one axis.
#[derive(FromPyObject)]
pub(crate) enum Shape {
    Extent(i64),
    Extents(Vec<i64>),
}

impl Shape {
    pub(crate) fn extents(self) -> Vec<i64> {
        match self {
            Self::Extent(extent) => vec![extent],
            Self::Extents(extents) => extents,
        }
    }
}

/// An integer or any other real number.
#[derive(FromPyObject, Clone, Copy)]
pub(crate) enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    fn to_element<T: FromNumber>(self) -> T {
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

    fn float(self) -> f64 {
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
            Self::Float(value) => value.fmt(f),
        }
    }
}

/// A wrong shape is the caller's argument, so it is a `ValueError` and not a `BufferError`.
pub(crate) fn bad_argument(error: dlbridge::Error) -> Error {
    match error.kind() {
        ErrorKind::OutOfMemory => error.into(),
        _ => Error::Python(PyValueError::new_err(error.to_string())),
    }
}

fn zeroed(dtype: DType, shape: &[i64]) -> Result<Tensor> {
    Tensor::zeros(dtype, shape).map_err(bad_argument)
}

/// Create a tensor of zeros, in memory that Rust owns.
#[pyfunction]
#[pyo3(signature = (shape, *, dtype=PyDType(DType::F64)), text_signature = "(shape, *, dtype='float64')")]
pub(crate) fn zeros(shape: Shape, dtype: PyDType) -> Result<TensorObject> {
    Ok(TensorObject::new(zeroed(dtype.0, &shape.extents())?))
}

/// Create a tensor of evenly spaced numbers, in memory that Rust owns.
#[pyfunction]
#[pyo3(signature = (start, /, stop=None, step=Number::Integer(1), *, dtype=None))]
pub(crate) fn arange(
    start: Number,
    stop: Option<Number>,
    step: Number,
    dtype: Option<PyDType>,
) -> Result<TensorObject> {
    let (start, stop) = match stop {
        Some(stop) => (start, stop),
        None => (Number::Integer(0), start),
    };
    let all_integers = [start, stop, step].iter().all(|n| matches!(n, Number::Integer(_)));
    let default = if all_integers { DType::I64 } else { DType::F64 };
    let dtype = dtype.map_or(default, |dtype| dtype.0);
    if step.float() == 0.0 {
        return Err(Error::Python(PyValueError::new_err(
            "step: expected a number other than 0, found 0",
        )));
    }
    let mut tensor = zeroed(dtype, &[range_len(start, stop, step)?])?;
    with_element!(dtype, |T| fill_range::<T>(&mut tensor, start, step)?,
        otherwise return Err(no_numbers(dtype)));
    Ok(TensorObject::new(tensor))
}

/// The number of elements from `start` up to, but not including, `stop`.
fn range_len(start: Number, stop: Number, step: Number) -> Result<i64> {
    if let (Number::Integer(start), Number::Integer(stop), Number::Integer(step)) =
        (start, stop, step)
    {
        if (stop > start) != (step > 0) || stop == start {
            return Ok(0);
        }
        // The distance between two `i128` values fits a `u128`.
        let steps = stop.abs_diff(start).div_ceil(step.unsigned_abs());
        return Ok(i64::try_from(steps).unwrap_or(i64::MAX));
    }
    let steps = (stop.float() - start.float()) / step.float();
    if steps.is_finite() {
        Ok(steps.ceil().max(0.0) as i64)
    } else {
        let message =
            format!("start, stop, step: expected a finite number of elements, found {steps}");
        Err(Error::Python(PyValueError::new_err(message)))
    }
}

fn fill_range<T: FromNumber>(tensor: &mut Tensor, start: Number, step: Number) -> Result<()> {
    let mut index = 0_i128;
    tensor.view_mut::<T>()?.map(|_| {
        let i = index;
        index += 1;
        match (start, step) {
            (Number::Integer(start), Number::Integer(step)) => {
                T::from_integer(start.wrapping_add(i.wrapping_mul(step)))
            }
            _ => T::from_float(start.float() + i as f64 * step.float()),
        }
    });
    Ok(())
}

/// Create a tensor from a copy of some bytes, in memory that Rust owns.
#[pyfunction]
#[pyo3(
    signature = (data, /, *, dtype=PyDType(DType::U8), shape=None),
    text_signature = "(data, /, *, dtype='uint8', shape=None)"
)]
pub(crate) fn from_bytes(
    data: &Bound<'_, PyAny>,
    dtype: PyDType,
    shape: Option<Shape>,
) -> Result<TensorObject> {
    let PyDType(dtype) = dtype;
    let bytes = as_bytes(data)?;
    let bytes = bytes.as_bytes();
    let shape = match shape {
        Some(shape) => without_unknown(shape.extents(), bytes.len(), dtype),
        None => vec![extent_of(bytes.len(), dtype)?],
    };
    let tensor = Tensor::from_bytes(dtype, &shape, bytes).map_err(bad_argument)?;
    Ok(TensorObject::new(tensor))
}

/// The extents, with the number that these bytes have elements for in place of one -1.
fn without_unknown(mut shape: Vec<i64>, size: usize, dtype: DType) -> Vec<i64> {
    let Some(unknown) = shape.iter().position(|&extent| extent == -1) else { return shape };
    let others = shape.iter().enumerate().filter(|&(axis, _)| axis != unknown);
    let bits = others
        .map(|(_, &extent)| i128::from(extent))
        .try_fold(i128::from(dtype.bits) * i128::from(dtype.lanes), i128::checked_mul);
    // Another number of bytes is refused where they are copied.
    if let Some(bits @ 1..) = bits {
        shape[unknown] = (size as i128 * 8 / bits) as i64;
    }
    shape
}

/// The bytes of an object with the buffer protocol; a `bytes` object is not copied.
fn as_bytes<'py>(data: &Bound<'py, PyAny>) -> Result<Bound<'py, PyBytes>> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    let memoryview = data.py().import("builtins")?.getattr("memoryview")?.call1((data,))?;
    let bytes = memoryview.call_method0("tobytes")?;
    Ok(bytes.cast_into().map_err(PyErr::from)?)
}

fn extent_of(size: usize, dtype: DType) -> Result<i64> {
    let Some(itemsize) = dtype.itemsize().filter(|&itemsize| itemsize != 0) else {
        return Err(Error::Python(PyValueError::new_err(format!(
            "shape: expected `shape=`, found none: {dtype} elements are narrower than a byte"
        ))));
    };
    Ok((size / itemsize) as i64)
}

pub(crate) fn no_numbers(dtype: DType) -> Error {
    let message = format!(
        "dtype: expected bool, an integer of 8 to 64 bits, float16, bfloat16, float32, float64, \
         complex64 or complex128, found {dtype}"
    );
    Error::Python(PyTypeError::new_err(message))
}
