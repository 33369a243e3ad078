//! Functions of small arrays, as an extension has them, with checked borrows.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

#[pyfunction]
fn call_one(x: PyReadonlyArray1<'_, f64>) -> f64 {
    x.as_array().sum()
}

#[pyfunction]
fn call_two(x: PyReadonlyArray1<'_, f64>, y: PyReadonlyArray1<'_, f64>) -> f64 {
    x.as_array().dot(&y.as_array())
}

#[pyfunction]
fn call_new<'py>(x: PyReadonlyArray1<'py, f64>) -> Bound<'py, PyArray1<f64>> {
    (&x.as_array() * 2.0).into_pyarray(x.py())
}

#[pyfunction]
fn call_two_new<'py>(
    x: PyReadonlyArray1<'py, f64>,
    y: PyReadonlyArray1<'py, f64>,
) -> Bound<'py, PyArray1<f64>> {
    (&x.as_array() + &y.as_array()).into_pyarray(x.py())
}

#[pyfunction]
fn call_write(mut x: PyReadwriteArray1<'_, f64>) {
    x.as_array_mut().mapv_inplace(|x| x.max(0.0));
}

#[pyfunction]
fn call_write_array(mut x: PyReadwriteArray1<'_, f64>) {
    x.as_array_mut().mapv_inplace(|x| x.max(0.0));
}

#[pyfunction]
fn call_slice(x: PyReadonlyArray1<'_, f64>) -> PyResult<f64> {
    Ok(x.as_slice()?.iter().sum())
}

#[pyfunction]
fn call_two_slices(x: PyReadonlyArray1<'_, f64>, y: PyReadonlyArray1<'_, f64>) -> PyResult<f64> {
    Ok(x.as_slice()?.iter().zip(y.as_slice()?).map(|(x, y)| x * y).sum())
}

#[pyfunction]
fn call_slice_new<'py>(x: PyReadonlyArray1<'py, f64>) -> PyResult<Bound<'py, PyArray1<f64>>> {
    Ok(x.as_slice()?.iter().map(|x| 2.0 * x).collect::<Vec<_>>().into_pyarray(x.py()))
}

#[pyfunction]
fn call_matrix(x: PyReadonlyArray2<'_, f64>) -> f64 {
    x.as_array().sum()
}

/// By the buffer protocol: rust-numpy knows arrays alone.
#[pyfunction]
fn call_bytes(py: Python<'_>, x: PyBuffer<u8>) -> PyResult<f64> {
    let cells = x.as_slice(py).ok_or_else(|| PyTypeError::new_err("expected contiguous bytes"))?;
    Ok(f64::from(cells.iter().map(|cell| cell.get()).sum::<u8>()) / 2.0)
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(call_one, module)?)?;
    module.add_function(wrap_pyfunction!(call_two, module)?)?;
    module.add_function(wrap_pyfunction!(call_new, module)?)?;
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
