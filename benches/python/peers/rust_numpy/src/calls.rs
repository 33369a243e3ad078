//! Functions of small arrays, as an extension has them, with checked borrows.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadwriteArray1};
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

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(call_one, module)?)?;
    module.add_function(wrap_pyfunction!(call_two, module)?)?;
    module.add_function(wrap_pyfunction!(call_new, module)?)?;
    module.add_function(wrap_pyfunction!(call_two_new, module)?)?;
    module.add_function(wrap_pyfunction!(call_write, module)?)?;
    Ok(())
}
