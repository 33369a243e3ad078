//! Functions of small arrays, as an extension has them.
//! Invariant: every function does what the same name in `../../peers/rust_numpy/src/calls.rs` does, so that the
//! size of an extension with these alone compares the two libraries.

use dlbridge_pyo3::{CallerArray, PyTensor, PyTensorMut, PyTensorOf, Result};
use pyo3::prelude::*;

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

/// Adds all to a module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(call_one, module)?)?;
    module.add_function(wrap_pyfunction!(call_two, module)?)?;
    module.add_function(wrap_pyfunction!(call_new, module)?)?;
    module.add_function(wrap_pyfunction!(call_new_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(call_two_new, module)?)?;
    module.add_function(wrap_pyfunction!(call_write, module)?)?;
    Ok(())
}
