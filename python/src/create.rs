//! `zeros` and `from_bytes`: tensors over memory that Rust owns.
//! Invariant: every tensor created here is contiguous, writable and 64-byte aligned.

use dlbridge::{DType, ErrorKind, Tensor, TypeCode};
use dlbridge_pyo3::error_of;
use dlbridge_pyo3::{Error, PyDType, PyTensor, Result};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyString, PyTuple};

use crate::arguments::Shape;

/// A wrong shape is the caller's argument, so it is a `ValueError` and not a `BufferError`.
pub(crate) fn bad_argument(error: dlbridge::Error) -> Error {
    match error.kind() {
        ErrorKind::OutOfMemory => error.into(),
        _ => Error::from(error_of::<PyValueError>(error.to_string())),
    }
}

/// Create a tensor of zeros, in memory that Rust owns.
///
/// >>> import dlbridge
/// >>> dlbridge.zeros((2, 3), dtype="int32").tolist()
/// [[0, 0, 0], [0, 0, 0]]
///
/// `shape` is an int or a sequence of ints; `dtype` a name, or a type of Python, NumPy, PyTorch or JAX.
/// Raises `ValueError` for a shape or a name that no tensor has, `MemoryError` for one that is too large.
#[pyfunction]
#[pyo3(signature = (shape, *, dtype=PyDType(DType::F64)), text_signature = "(shape, *, dtype='float64')")]
pub(crate) fn zeros(shape: Shape, dtype: PyDType) -> Result<PyTensor> {
    Ok(Tensor::zeros(dtype.0, &shape.0).map_err(bad_argument)?.into())
}

/// Create a tensor from a copy of some bytes, in memory that Rust owns.
///
/// >>> import dlbridge
/// >>> dlbridge.from_bytes(bytes(range(4)), dtype="uint8", shape=(2, 2)).tolist()
/// [[0, 1], [2, 3]]
///
/// `data` is `bytes` or another buffer, `dtype` as in `zeros`; one extent of `shape` may be -1.
/// Raises `ValueError` for bytes of another size than that of the shape and the dtype.
#[pyfunction]
#[pyo3(
    signature = (data, /, *, dtype=PyDType(DType::U8), shape=None),
    text_signature = "(data, /, *, dtype='uint8', shape=None)"
)]
pub(crate) fn from_bytes(
    data: &Bound<'_, PyAny>,
    dtype: PyDType,
    shape: Option<Shape>,
) -> Result<PyTensor> {
    let PyDType(dtype) = dtype;
    let shape_of = |size| match shape {
        Some(Shape(shape)) => without_unknown(shape, size, dtype),
        None => Ok(vec![extent_of(size, dtype)?]),
    };
    let tensor = if let Ok(bytes) = data.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        Tensor::from_bytes(dtype, &shape_of(bytes.len())?, bytes).map_err(bad_argument)?
    } else {
        let buffer = byte_buffer(data)?;
        copy_of_buffer(data.py(), dtype, &shape_of(buffer.item_count())?, &buffer)?
    };
    Ok(tensor.into())
}

/// The bytes of an object with the buffer protocol, in the order of its elements.
fn byte_buffer(data: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    let view = PyMemoryView::from(data).or_else(|error| no_bytes(data, error))?;
    // A buffer with gaps, or of elements that Python has no type for, is copied before.
    let flat = view.call_method1("cast", ("B",)).or_else(|_| view.call_method0("tobytes"))?;
    PyBuffer::get(&flat)
}

fn copy_of_buffer(
    py: Python<'_>,
    dtype: DType,
    shape: &[i64],
    buffer: &PyBuffer<u8>,
) -> Result<Tensor> {
    let element = u128::from(dtype.bits) * u128::from(dtype.lanes);
    let mut extents = shape.iter().map(|&extent| u128::try_from(extent).ok());
    let bits = extents.try_fold(element, |bits, extent| bits.checked_mul(extent?));
    let fits = bits.is_some_and(|bits| bits.div_ceil(8) == buffer.item_count() as u128);
    // Bytes of another size are an error, and bools are not written as bytes.
    if !fits || dtype.code == TypeCode::BOOL {
        return Tensor::from_bytes(dtype, shape, &buffer.to_vec(py)?).map_err(bad_argument);
    }
    let mut tensor = Tensor::zeros(dtype, shape).map_err(bad_argument)?;
    buffer.copy_to_slice(py, tensor.as_bytes_mut()?)?;
    Ok(tensor)
}

fn bad_value<T>(message: String) -> Result<T> {
    Err(Error::from(error_of::<PyValueError>(message)))
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

/// The error for an object without a buffer.
fn no_bytes<'py>(data: &Bound<'py, PyAny>, error: PyErr) -> PyResult<Bound<'py, PyMemoryView>> {
    let py = data.py();
    // One with a traceback is that of the object's own `__buffer__`.
    if !error.is_instance_of::<PyTypeError>(py) || error.traceback(py).is_some() {
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
    Err(error_of::<PyTypeError>(message))
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
