//! The paths of the benchmark through rust-numpy, which knows NumPy's arrays and no others.

use numpy::ndarray::Array2;
use numpy::{PyArray2, PyReadonlyArray2};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

#[pyfunction]
fn nothing() {}

#[pyfunction]
fn ignore(_array: &Bound<'_, PyAny>) -> f32 {
    1.5
}

#[pyfunction]
fn read(array: PyReadonlyArray2<'_, f32>) -> PyResult<f32> {
    let first = array.as_array().first().copied();
    first.ok_or_else(|| PyTypeError::new_err("expected elements"))
}

/// The array moves into NumPy: no copy, no DLPack.
#[pyfunction]
fn make_numpy(py: Python<'_>) -> PyResult<Bound<'_, PyArray2<f32>>> {
    let elements = vec![1.5_f32, 2.5, 3.5, 4.5, 5.5, 6.5];
    let array = Array2::from_shape_vec((2, 3), elements);
    let array = array.map_err(|error| PyTypeError::new_err(error.to_string()))?;
    Ok(PyArray2::from_owned_array(py, array))
}

#[pymodule]
fn bench_rust_numpy(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(nothing, module)?)?;
    module.add_function(wrap_pyfunction!(ignore, module)?)?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(make_numpy, module)?)
}
