//! `zeros`, `arange` and `from_bytes`: tensors over memory that Rust owns.
//! Invariant: every tensor created here is contiguous, writable and 64-byte aligned.

use dlbridge::layout::contiguous_nbytes;
use dlbridge::{DType, ErrorKind, Tensor};
use dlbridge_pyo3::{Error, PyDType, Result, TensorObject};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::arguments::{Number, Shape, in_python};
use crate::dispatch::{FromNumber, with_element};

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
    Ok(TensorObject::new(zeroed(dtype.0, &shape.0)?))
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
        return bad_value("step: expected a number other than 0, found 0".to_owned());
    }
    let len = range_len(start, stop, step)?;
    let tensor = with_element!(dtype, |T| range::<T>(len, start, step)?,
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
        bad_value(format!(
            "start, stop, step: expected a finite number of elements, found {}",
            in_python(steps)
        ))
    }
}

fn range<T: FromNumber>(len: i64, start: Number, step: Number) -> Result<Tensor> {
    let number = |index: i128| match (start, step) {
        (Number::Integer(start), Number::Integer(step)) => {
            Number::Integer(start.wrapping_add(index.wrapping_mul(step)))
        }
        _ => Number::Float(start.float() + index as f64 * step.float()),
    };
    // Too many elements are an error of the size, whatever their values.
    if contiguous_nbytes(T::DTYPE, &[len]).map_err(bad_argument)? == 0 {
        return zeroed(T::DTYPE, &[0]);
    }
    let last = number(i128::from(len - 1));
    for end in [number(0), last] {
        if end.checked::<T>().is_none() {
            let dtype = T::DTYPE;
            let message =
                format!("start, stop, step: expected numbers within {dtype}, found {end}");
            return Err(Error::Python(PyOverflowError::new_err(message)));
        }
    }
    let small = |number| match number {
        Number::Integer(integer) => i64::try_from(integer).ok(),
        Number::Float(_) => None,
    };
    let ends = small(start).zip(small(last));
    if let Some(((start, _), step)) = ends.zip(small(step)) {
        // Both ends fit, so that nothing between them wraps.
        by_index(len, |index| T::from_i64(start.wrapping_add(index.wrapping_mul(step))))
    } else {
        by_index(len, |index| number(i128::from(index)).to_element::<T>())
    }
}

/// A tensor of one axis. It is mapped from one zero that is broadcast, so that its memory is written once; memory
/// that is zeroed first may come from the kernel page by page.
fn by_index<T: FromNumber>(len: i64, element: impl Fn(i64) -> T) -> Result<Tensor> {
    let zeros = Tensor::from([0_u8]).broadcast_to(&[len]).map_err(bad_argument)?;
    let mut index = 0;
    let next = |_| {
        let value = element(index);
        index += 1;
        value
    };
    zeros.view::<u8>()?.map_to_tensor(next).map_err(bad_argument)
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
        Some(Shape(shape)) => without_unknown(shape, bytes.len(), dtype)?,
        None => vec![extent_of(bytes.len(), dtype)?],
    };
    let tensor = Tensor::from_bytes(dtype, &shape, bytes).map_err(bad_argument)?;
    Ok(TensorObject::new(tensor))
}

fn bad_value<T>(message: String) -> Result<T> {
    Err(Error::Python(PyValueError::new_err(message)))
}

/// The extents, with the number that these bytes have elements for in place of one -1.
fn without_unknown(mut shape: Vec<i64>, size: usize, dtype: DType) -> Result<Vec<i64>> {
    let Some(unknown) = shape.iter().position(|&extent| extent == -1) else { return Ok(shape) };
    let others = shape.iter().enumerate().filter(|&(axis, _)| axis != unknown);
    if others.clone().any(|(_, &extent)| extent <= 0) {
        return bad_value(format!(
            "shape: expected one -1 at most, and extents above 0 beside it, found {shape:?}"
        ));
    }
    let bits = others
        .map(|(_, &extent)| extent.unsigned_abs().into())
        .try_fold(u128::from(dtype.bits) * u128::from(dtype.lanes), u128::checked_mul)
        .unwrap_or(u128::MAX);
    let (size, count) = (size as u128, size as u128 * 8 / bits.max(1));
    // Elements narrower than a byte may leave bits of the last byte unused.
    if (count * bits).div_ceil(8) != size {
        return bad_value(format!(
            "data: expected a multiple of {} bytes for shape {shape:?} of {dtype}, found {size}",
            bits.div_ceil(8)
        ));
    }
    shape[unknown] = count as i64;
    Ok(shape)
}

/// The bytes of an object with the buffer protocol; a `bytes` object is not copied.
fn as_bytes<'py>(data: &Bound<'py, PyAny>) -> Result<Bound<'py, PyBytes>> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    let memoryview = data.py().import("builtins")?.getattr("memoryview")?;
    let view = memoryview.call1((data,)).or_else(|error| no_bytes(data, error))?;
    let bytes = view.call_method0("tobytes")?;
    Ok(bytes.cast_into().map_err(PyErr::from)?)
}

/// The error for an object without a buffer.
fn no_bytes<'py>(data: &Bound<'py, PyAny>, error: PyErr) -> PyResult<Bound<'py, PyAny>> {
    if !error.is_instance_of::<PyTypeError>(data.py()) {
        return Err(error);
    }
    let help = if data.is_instance_of::<PyString>() {
        "; pass x.encode()"
    } else if data.is_instance_of::<PyList>() || data.is_instance_of::<PyTuple>() {
        "; pass bytes(x)"
    } else {
        ""
    };
    let found = data.get_type().qualname()?;
    let message = format!("data: expected bytes or an object with a buffer, found {found}{help}");
    Err(PyTypeError::new_err(message))
}

fn extent_of(size: usize, dtype: DType) -> Result<i64> {
    let Some(itemsize) = dtype.itemsize().filter(|&itemsize| itemsize != 0) else {
        return bad_value(format!(
            "shape: expected `shape=`, found none: {dtype} elements are narrower than a byte"
        ));
    };
    if size % itemsize != 0 {
        return bad_value(format!(
            "data: expected a multiple of {itemsize} bytes, the size of {dtype}, found {size}"
        ));
    }
    Ok((size / itemsize) as i64)
}

pub(crate) fn no_numbers(dtype: DType) -> Error {
    let message = format!(
        "dtype: expected bool, an integer of 8 to 64 bits, float16, bfloat16, float32, float64, \
         complex64 or complex128, found {dtype}"
    );
    Error::Python(PyTypeError::new_err(message))
}
