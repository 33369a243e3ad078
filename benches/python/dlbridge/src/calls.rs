//! Functions of small arrays, as an extension has them.
//! Invariant: every function does what the same name in `../../peers/rust_numpy/src/calls.rs` does, so that the
//! size of an extension with these alone compares the two libraries.

#![allow(unsafe_code, reason = "slices of the caller's memory need a promise")]

use dlbridge_pyo3::{
    CallerArray, PyTensor, PyTensorMut, PyTensorOf, Result, StableArguments, Writable,
};
use ndarray::{ArrayView2, ArrayViewMut1};
use pyo3::prelude::*;

struct Stable;

// SAFETY: the benchmark has one thread, which waits for each call.
unsafe impl StableArguments for Stable {}

/// A number of one array.
#[pyfunction]
fn call_one(x: PyTensorOf<f64, 1>) -> f64 {
    x.view().iter().sum()
}

/// A number of two arrays.
#[pyfunction]
fn call_two(x: PyTensorOf<f64, 1>, y: PyTensorOf<f64, 1>) -> Result<f64> {
    Ok(x.view().zip(&y.view())?.map(|(x, y)| x * y).sum())
}

/// A new array of the caller's type.
#[pyfunction]
fn call_new<'py>(x: CallerArray<'py, f64, 1>) -> Result<Bound<'py, PyAny>> {
    x.to_caller(x.view().map_to_tensor(|x| 2.0 * x)?)
}

/// A `dlbridge.Tensor`.
#[pyfunction]
fn call_new_tensor(x: PyTensorOf<f64, 1>) -> Result<PyTensor> {
    Ok(x.view().map_to_tensor(|x| 2.0 * x)?.into())
}

/// A new array of two.
#[pyfunction]
fn call_two_new<'py>(
    x: CallerArray<'py, f64, 1>,
    y: PyTensorOf<f64, 1>,
) -> Result<Bound<'py, PyAny>> {
    x.to_caller(x.view().zip_to_tensor(&y.view(), |x, y| x + y)?)
}

/// The elements, in place.
#[pyfunction]
fn call_write(mut x: PyTensorMut<f64, 1>) {
    x.view_mut().map_inplace(|x| x.max(0.0));
}

/// The same in place as an array of ndarray.
#[pyfunction]
fn call_write_array(mut x: PyTensorOf<f64, 1, (Stable, Writable)>) -> Result<()> {
    x.as_array_mut::<ArrayViewMut1<f64>>()?.mapv_inplace(|x| x.max(0.0));
    Ok(())
}

/// A number of one slice.
#[pyfunction]
fn call_slice(x: PyTensorOf<f64, 1, Stable>) -> Result<f64> {
    Ok(x.as_slice()?.iter().sum())
}

/// A number of two slices.
#[pyfunction]
fn call_two_slices(x: PyTensorOf<f64, 1, Stable>, y: PyTensorOf<f64, 1, Stable>) -> Result<f64> {
    Ok(x.as_slice()?.iter().zip(y.as_slice()?).map(|(x, y)| x * y).sum())
}

/// A new array of a slice.
#[pyfunction]
fn call_slice_new<'py>(x: CallerArray<'py, f64, 1, Stable>) -> Result<Bound<'py, PyAny>> {
    x.to_caller(x.as_slice()?.iter().map(|x| 2.0 * x).collect::<Vec<_>>())
}

/// A number of a matrix of ndarray.
#[pyfunction]
fn call_matrix(x: PyTensorOf<f64, 2, Stable>) -> Result<f64> {
    Ok(x.as_array::<ArrayView2<f64>>()?.sum())
}

/// A number of bytes.
#[pyfunction]
fn call_bytes(x: PyTensorOf<u8, 1>) -> f64 {
    f64::from(x.view().iter().sum::<u8>()) / 2.0
}

/// Adds all to a module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(call_one, module)?)?;
    module.add_function(wrap_pyfunction!(call_two, module)?)?;
    module.add_function(wrap_pyfunction!(call_new, module)?)?;
    module.add_function(wrap_pyfunction!(call_new_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(call_two_new, module)?)?;
    module.add_function(wrap_pyfunction!(call_write, module)?)?;
    module.add_function(wrap_pyfunction!(call_write_array, module)?)?;
    module.add_function(wrap_pyfunction!(call_slice, module)?)?;
    module.add_function(wrap_pyfunction!(call_two_slices, module)?)?;
    module.add_function(wrap_pyfunction!(call_slice_new, module)?)?;
    module.add_function(wrap_pyfunction!(call_matrix, module)?)?;
    module.add_function(wrap_pyfunction!(call_bytes, module)?)?;
    Ok(())
}
